// SPDX-License-Identifier: Apache-2.0
// SymmetricGroup: signals among the ranks of a process group, and their symmetric memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/symm_mem/segment_directory.h"
#include "daemon/comm/symm_mem/signal_pad.h"
#include "daemon/comm/symm_mem/signal_watch.h"
#include "daemon/comm/symm_mem/symmetric_buffer.h"

namespace meshloom::comm {

class SymmetricMemory;

/// Comes from SymmetricMemory::enable. Every group has a pad of its own, so channels of several
/// groups, also overlapping ones, never meet. Ranks are those of the group. Used by the rank's
/// training thread; it ends before the ProcessGroup.
///
/// Signals, barriers, rendezvous and workspaces throw FailedPrecondition (SYMM_MEM_UNAVAILABLE)
/// with why_not() where the group is not enabled. After the recovery of a failure (failure.h) all
/// signals begin anew: what was put and not taken before is gone.
class SymmetricGroup {
 public:
  using Timeout = std::optional<std::chrono::milliseconds>;  ///< none: that of the options

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  int channels() const { return channels_; }

  /// The same answer on all ranks of the group.
  bool enabled() const { return why_not_.empty(); }
  /// Which rank cannot do what; empty where the group is enabled.
  const std::string& why_not() const { return why_not_; }
  /// Whether one address reaches the memory of all ranks at once (SymmetricBuffer::multicast_view);
  /// the same answer on all ranks.
  bool has_multicast() const { return why_no_multicast().empty(); }
  /// Empty where there is one.
  std::string why_no_multicast() const;
  /// How this rank reaches the memory of another one; kNone for itself.
  Sharing sharing(int rank) const;
  /// One line for people: each peer, how it is reached and what tells that it has ended.
  std::string summary() const;

  /// Tells `destination` that all that this rank wrote before is there. Waits until the signal
  /// before it, on this channel to this peer, was taken. What ends waits: signal_watch.h; a put
  /// that threw has told nothing.
  void put_signal(int destination, int channel, Timeout timeout = {});
  /// Waits for the next signal of `source` on this channel, and takes it.
  void wait_signal(int source, int channel, Timeout timeout = {});
  /// Every rank of the group calls it, equally often on each channel: waits for all. It counts
  /// apart from puts of the same channel. One that threw is the same barrier when it is called
  /// again.
  void barrier(int channel, Timeout timeout = {});

  /// Every rank calls it with contiguous memory of its own, of any size: views of all of them. Null
  /// on all ranks where that of some rank does not lie in a segment of its SymmetricMemory.
  std::shared_ptr<SymmetricBuffer> rendezvous(const TensorView& mine);
  /// Every rank calls it with the same size. At least `bytes` on each rank, all of one segment; it
  /// only grows: a larger size is a new segment, and who holds the one before keeps it. Throws
  /// ResourceExhausted on all ranks where one has no memory.
  std::shared_ptr<SymmetricBuffer> workspace(std::size_t bytes);
  /// A further segment of `rank`, which has told its name, in memory that is shared already for
  /// instance; mapped when it is first asked for, without help of its owner, and not again as long
  /// as somebody holds it. The owner holds it meanwhile. Where descriptors go over sockets it
  /// waits, as signals do, for one that is still on its way; else throws CommError
  /// (SYMM_MEM_UNAVAILABLE) where it cannot be opened.
  std::shared_ptr<Segment> attach(int rank, const SegmentName& name, Timeout timeout = {});

 private:
  friend class SymmetricMemory;
  SymmetricGroup(ProcessGroup& group, SymmetricMemory& memory);

  void make_pads();
  void check_signal(const char* name, int peer, int channel);
  void check_enabled(const char* name) const;
  /// Begins anew if the ranks have recovered from a failure since the last call.
  void follow_generation();
  SignalWatch::Call call(const char* name, int channel, Timeout timeout) const;
  std::size_t slot(int channel, int peer) const {
    return static_cast<std::size_t>(channel * size() + peer);
  }
  const SignalPad& pad(int rank) const { return pads_[static_cast<std::size_t>(rank)]; }

  ProcessGroup& group_;
  SymmetricMemory& memory_;
  int channels_;
  std::string why_not_;
  GatheredSegments pad_memory_;
  std::vector<SignalPad> pads_;  ///< by rank
  std::optional<SignalWatch> watch_;
  std::uint64_t generation_ = 0;
  std::vector<std::uint64_t> puts_, takes_, barriers_;  ///< by slot; barriers by channel
  std::shared_ptr<SymmetricBuffer> workspace_;
};

}  // namespace meshloom::comm
