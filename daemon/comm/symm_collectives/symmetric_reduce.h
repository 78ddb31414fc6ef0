// SPDX-License-Identifier: Apache-2.0
// Reductions in symmetric memory: one-shot for small data, two-shot for large.
#pragma once

#include <vector>

#include "daemon/comm/symm_collectives/symmetric_collective.h"

namespace meshloom::comm {

/// Every rank reads the data of all and sums by itself: for small data, for which peers wait for
/// each other once.
class SymmetricOneShot final : public SymmetricCollective {
 public:
  SymmetricOneShot(SymmetricContext& context, const Call& call);

 private:
  Piece piece(int) const override { return data_; }
  std::size_t expected(int) const override { return data_.bytes; }
  bool readable_in_place() const override { return false; }
  void take(std::uint64_t first, std::uint64_t count) override;

  Piece data_;
  DType dtype_;
  ReduceOp op_;
};

/// Rank r owns part r: it sums what all ranks have for it, in rank order, from where it lies. In an
/// all_reduce it then writes the sum over every rank's part r, which it alone has read.
class SymmetricReduce final : public SymmetricCollective {
 public:
  /// reduce_scatter or all_reduce.
  SymmetricReduce(SymmetricContext& context, const Call& call);

 private:
  Piece piece(int peer) const override { return parts_[static_cast<std::size_t>(peer)]; }
  std::size_t expected(int) const override { return own().bytes; }
  bool answered() const override { return gather_; }
  void take(std::uint64_t first, std::uint64_t count) override;
  void take_answers(std::uint64_t slice) override;

  const Piece& own() const { return parts_[static_cast<std::size_t>(context().rank())]; }

  std::vector<Piece> parts_;  ///< what this rank has for each part
  std::byte* sum_;            ///< where its own part is written
  DType dtype_;
  DType sum_dtype_;  ///< the same, or partial_dtype() of it
  ReduceOp op_;
  bool gather_;
};

}  // namespace meshloom::comm
