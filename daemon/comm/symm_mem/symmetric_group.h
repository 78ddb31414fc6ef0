// SPDX-License-Identifier: Apache-2.0
// SymmetricGroup: signals among the ranks of a process group, and their symmetric memory.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/comm/process_group.h"
#include "daemon/comm/symm_mem/symmetric_buffer.h"

namespace meshloom::comm {

/// It comes from SymmetricMemory::enable. Every group has signals of its own, so channels of
/// several groups, also overlapping ones, never meet. Ranks are those of the group. Used by the
/// rank's training thread; it ends before the ProcessGroup.
///
/// Signals, barriers, rendezvous and workspaces throw FailedPrecondition (SYMM_MEM_UNAVAILABLE)
/// with why_not() where the group is not enabled, and InvalidArgument (SYMM_MEM_RANK,
/// SYMM_MEM_CHANNEL) for ranks and channels that there are not. After the recovery of a failure
/// (failure.h) all signals begin anew: what was put and not taken before is gone.
class SymmetricGroup {
 public:
  using Timeout = std::optional<std::chrono::milliseconds>;  ///< none: that of the memory

  virtual ~SymmetricGroup() = default;
  SymmetricGroup(const SymmetricGroup&) = delete;
  SymmetricGroup& operator=(const SymmetricGroup&) = delete;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  int channels() const { return channels_; }

  /// Gives the same answer on all ranks of the group.
  bool enabled() const { return why_not_.empty(); }
  /// Tells which rank cannot do what; empty where the group is enabled.
  const std::string& why_not() const { return why_not_; }
  /// Tells whether one address reaches the memory of all ranks at once
  /// (SymmetricBuffer::multicast_view); the same answer on all ranks.
  bool has_multicast() const { return why_no_multicast().empty(); }
  /// Returns why no one address reaches the memory of all ranks; empty where one does.
  virtual std::string why_no_multicast() const = 0;
  /// Returns one line for people: each peer, how it is reached and what tells that it has ended.
  virtual std::string summary() const = 0;

  /// Tells `destination` that all that this rank wrote before is there. Waits until the signal
  /// before it, on this channel to this peer, was taken. A put that threw has told nothing. What
  /// ends this and the waits below: a deadline, a peer that has ended, a failure or an abort.
  virtual void put_signal(int destination, int channel, Timeout timeout = {}) = 0;
  /// Waits for the next signal of `source` on this channel, and takes it.
  virtual void wait_signal(int source, int channel, Timeout timeout = {}) = 0;
  /// Every rank of the group calls it, equally often on each channel: waits for all. It counts
  /// apart from puts of the same channel. One that threw is the same barrier when it is called
  /// again.
  virtual void barrier(int channel, Timeout timeout = {}) = 0;

  /// Every rank calls it with contiguous memory of its own, of any size: views of all of them. Null
  /// on all ranks where that of some rank does not lie in its SymmetricMemory.
  virtual std::shared_ptr<SymmetricBuffer> rendezvous(const TensorView& mine) = 0;
  /// Every rank calls it with the same size. At least `bytes` on each rank, all of one piece; it
  /// only grows: a larger size is new memory, and who holds the one before keeps it. Throws
  /// ResourceExhausted on all ranks where one has no memory.
  virtual std::shared_ptr<SymmetricBuffer> workspace(std::size_t bytes) = 0;

 protected:
  SymmetricGroup(ProcessGroup& group, int channels) : group_(group), channels_(channels) {}
  void refuse(std::string why_not) { why_not_ = std::move(why_not); }

  ProcessGroup& group() const { return group_; }
  void check_enabled(const char* name) const;
  void check_signal(const char* name, int peer, int channel) const;

 private:
  ProcessGroup& group_;
  int channels_;
  std::string why_not_;
};

}  // namespace meshloom::comm
