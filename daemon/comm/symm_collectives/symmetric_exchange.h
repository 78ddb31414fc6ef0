// SPDX-License-Identifier: Apache-2.0
// Collectives in symmetric memory that move bytes: all_gather, all_to_all, broadcast, scatter,
// gather, barrier.
#pragma once

#include <vector>

#include "daemon/comm/symm_collectives/symmetric_collective.h"

namespace meshloom::comm {

/// Each rank copies out of the memory of every peer what the peer has for it.
class SymmetricExchange final : public SymmetricCollective {
 public:
  /// Starts one of the kinds above.
  static std::unique_ptr<Collective> start(SymmetricContext& context, const Call& call);

 private:
  SymmetricExchange(SymmetricContext& context, const Call& call, int pieces);

  Piece piece(int peer) const override { return give_[index(peer)]; }
  std::size_t expected(int peer) const override { return take_[index(peer)].bytes; }
  bool readable_in_place() const override { return !overlap_; }
  void take(std::uint64_t first, std::uint64_t count) override;

  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }

  std::vector<Piece> give_, take_;  ///< by peer
  bool overlap_ = false;            ///< what is taken lies where something is given
};

}  // namespace meshloom::comm
