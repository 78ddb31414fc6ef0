// SPDX-License-Identifier: Apache-2.0
// Collectives that only move bytes: exchange, broadcast, barrier.
#pragma once

#include "daemon/comm/collectives/context.h"

namespace meshloom::comm {

/// Exchange is one round of sends and receives, one for each peer at most: all_gather, all_to_all,
/// scatter, gather, send, recv.
class Exchange : public Collective {
 public:
  struct Piece {
    std::byte* data;
    std::size_t bytes;
    int peer;
  };

  Exchange(CollectiveContext context, const std::vector<Piece>& receives,
           const std::vector<Piece>& sends);

  bool advance() override { return transfers_.done(); }
  std::uint64_t progress() const override { return transfers_.completed(); }
  std::vector<int> missing() const override { return transfers_.missing(); }

 private:
  Transfers transfers_;
};

inline std::byte* memory_of(const TensorView& view) { return view.as<std::byte>(); }
inline Exchange::Piece piece(const TensorView& view, int peer) {
  return {memory_of(view), view.bytes(), peer};
}

/// BinomialTree says whom one of `size` members of a binomial tree hears from and tells, children
/// that have most below them first. parent is -1 for the root.
struct BinomialTree {
  int parent = -1;
  std::vector<int> children{};
};
BinomialTree binomial_tree(int size, int member, int root);

/// Broadcast goes down a binomial tree from the root, in slices, so that a rank passes on while it
/// receives.
class Broadcast : public Collective {
 public:
  Broadcast(CollectiveContext context, std::byte* data, std::size_t bytes, int root);

  bool advance() override;
  std::uint64_t progress() const override;
  std::vector<int> missing() const override;

 private:
  std::size_t slice_bytes(std::size_t begin) const;

  CollectiveContext context_;
  std::byte* data_;
  std::size_t bytes_;
  BinomialTree tree_;
  bool started_ = false;      ///< the first slice was passed on, be it empty
  std::size_t received_ = 0;  ///< bytes that are here and were passed on
  Transfers incoming_, outgoing_;
  Transfers neighbours_;  ///< signatures that go with no data
};

/// It is a dissemination barrier (Hensgen, Finkel, Manber 1988): in round k a rank tells the one
/// 2^k after it and hears from the one 2^k before it.
class Barrier : public Collective {
 public:
  explicit Barrier(CollectiveContext context);

  bool advance() override;
  std::uint64_t progress() const override { return transfers_.completed(); }
  std::vector<int> missing() const override { return transfers_.missing(); }

 private:
  void start_round();

  CollectiveContext context_;
  int distance_ = 1;
  std::byte token_{};
  std::byte heard_{};
  Transfers transfers_;
};

}  // namespace meshloom::comm
