// SPDX-License-Identifier: Apache-2.0
// Two-shot reductions: each rank sums its own part of the data, in slices that overlap.
#pragma once

#include <deque>
#include <memory>

#include "daemon/comm/collectives/context.h"

namespace meshloom::comm {

/// Rank r owns part r. Slice by slice, every rank sends to each peer its contribution to the peer's
/// part, sums what it got for its own part in rank order, and, for an all_reduce, sends the sum to
/// all. Staging memory is a few slices, whatever the size of the data. Since every element is
/// summed in rank order, results do not depend on how data is sliced.
class ReduceCollective : public Collective {
 public:
  struct Part {
    std::byte* data = nullptr;  ///< this rank's contribution to the part
    std::int64_t size = 0;      ///< in elements
  };
  struct Job {
    std::vector<Part> parts;            ///< one per rank
    std::byte* sum = nullptr;           ///< where this rank's own part is written
    DType dtype = DType::kFloat32;      ///< of the parts
    DType sum_dtype = DType::kFloat32;  ///< the same, or partial_dtype() of it
    ReduceOp op = ReduceOp::kSum;
    bool gather = false;  ///< afterwards parts[r].data receives rank r's sum
  };

  ReduceCollective(CollectiveContext context, Job job);
  ~ReduceCollective() override;

  bool advance() override;
  std::uint64_t progress() const override;
  std::vector<int> missing() const override;

 private:
  struct Slice {
    Transfers transfers;
    ScratchPool::Block staging;
    std::int64_t begin = 0;  ///< in elements, in every part
    bool gathering = false;
  };

  void start_slice();
  void sum_slice(Slice& slice);
  void gather_slice(Slice& slice);
  /// Returns the elements of part r in the slice that starts at `begin`.
  std::int64_t slice_size(int r, std::int64_t begin) const;

  CollectiveContext context_;
  Job job_;
  std::int64_t slice_elements_;
  std::int64_t next_ = 0;  ///< where the next slice starts
  std::int64_t longest_ = 0;
  std::uint64_t completed_ = 0;
  std::deque<Slice> slices_;
};

/// It is for small data: every rank sends all of it to all and sums by itself. One message time
/// instead of two.
class OneShotAllReduce : public Collective {
 public:
  OneShotAllReduce(CollectiveContext context, std::byte* data, std::int64_t n, DType dtype,
                   ReduceOp op);

  bool advance() override;
  std::uint64_t progress() const override { return transfers_.completed(); }
  std::vector<int> missing() const override { return transfers_.missing(); }

 private:
  CollectiveContext context_;
  std::byte* data_;
  std::int64_t n_;
  DType dtype_;
  ReduceOp op_;
  ScratchPool::Block staging_;
  Transfers transfers_;
};

}  // namespace meshloom::comm
