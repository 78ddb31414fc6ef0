// SPDX-License-Identifier: Apache-2.0
// SymmetricContext: what the collectives of one group in symmetric memory share.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "daemon/comm/symm_collectives/collective_pad.h"
#include "daemon/comm/symm_collectives/shared_segments.h"
#include "daemon/comm/symm_collectives/symmetric_algorithms.h"

namespace meshloom::comm {

/// A rank saw this last of a peer in the collective that a slot is used for.
struct PeerView {
  bool arrived = false;
  std::uint64_t ready = 0;     ///< slices that can be read
  std::uint64_t consumed = 0;  ///< slices that the peer needs no more
  std::byte* data = nullptr;   ///< its share for this rank; null: not resolved yet
  std::size_t ring = 0, stride = 0;
};

/// There is one per rank and group, used by the rank's training thread.
class SymmetricContext {
 public:
  /// Slices of 512 KiB keep what a rank stages and sums in its second-level cache, and what it
  /// copies of pieces that caches hold; four of them let a rank fill ahead of its peers.
  static constexpr std::size_t kSliceBytes = 512 << 10;
  static constexpr std::size_t kRing = 4;

  /// `pads` holds the memory of each rank's pad.
  SymmetricContext(GatheredSegments pads, int rank, const SymmetricSetup& setup);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(pads_.size()); }
  Threads threads() const { return threads_; }
  SharedSegments& segments() { return segments_; }
  const CollectivePad& pad(int rank) const { return pads_[static_cast<std::size_t>(rank)]; }
  const CollectivePad& own_pad() const { return pad(rank_); }
  /// Returns the number that errors call a rank by.
  int name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }

  std::uint64_t value(std::uint64_t number, std::uint64_t slices) const {
    return FlagValue::of(generation_, number, slices);
  }
  /// Tells whether all ranks have finished what the slot of this collective was used for before.
  bool admits(std::uint64_t number);
  /// Tells whether a rank has finished what the slot of this collective was used for before.
  bool has_left(int rank, std::uint64_t number) const {
    const CollectivePad::Flag& finished = pad(rank).finished();
    return number < FlagValue::number(finished.load(std::memory_order_acquire), generation_) +
                        CollectivePad::kSlots;
  }
  /// Returns what is known of the peers in an admitted collective, by rank.
  std::vector<PeerView>& peers(std::uint64_t number) {
    return peers_[static_cast<std::size_t>(number % CollectivePad::kSlots)];
  }
  /// This rank has read all that it reads in this collective.
  void finish(std::uint64_t number);

  /// Takes kRing * stride bytes of symmetric memory; give_back() when all peers have read them.
  std::shared_ptr<Segment> take_staging(std::size_t stride);
  void give_back(std::shared_ptr<Segment> staging) { staging_.push_back(std::move(staging)); }

  /// Peers may touch memory of a collective that was given up, until all ranks have met.
  void note_peer_access() { access_->open = true; }
  /// Returns a rank among `ranks` whose process has ended; -1: none, or not asked again so soon.
  int find_gone(const std::vector<int>& ranks);
  bool is_gone(int rank) const {
    const auto& process = processes_[static_cast<std::size_t>(rank)];
    return process && process->gone();
  }
  std::int64_t pid(int rank) const;
  /// Returns "its process 123 is stopped (SIGSTOP or a debugger)".
  std::string about(int rank) const;

  /// Moves descriptors that wait to be sent or taken.
  void pump() {
    if (by_socket_) memory_->directory().pump();
  }
  /// Everything begins anew, with no collective left on any rank.
  void renew();
  /// Staging memory is neither used again nor freed.
  void abandon_memory();

 private:
  std::shared_ptr<HostSymmetricMemory> memory_;
  GatheredSegments pad_memory_;
  int rank_;
  Threads threads_;
  std::shared_ptr<PeerAccess> access_;
  std::vector<int> names_;  ///< by rank
  std::vector<CollectivePad> pads_;
  SharedSegments segments_;
  bool by_socket_;
  std::vector<std::unique_ptr<PeerProcess>> processes_;  ///< null: a thread of this process
  Clock::time_point processes_seen_;

  std::uint64_t generation_ = 0;
  std::uint64_t finished_ = 0;         ///< collectives before this number are all finished
  std::uint64_t finished_behind_ = 0;  ///< bit i: number finished_ + i is finished
  std::uint64_t finished_by_all_ = 0;
  std::array<std::vector<PeerView>, CollectivePad::kSlots> peers_;
  std::vector<std::shared_ptr<Segment>> staging_;
};

}  // namespace meshloom::comm
