// SPDX-License-Identifier: Apache-2.0
// SymmetricMemory: the memory of a rank that its peers inside the host can read and write.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "daemon/comm/process_group.h"
#include "daemon/comm/symm_mem/symmetric_group.h"
#include "kernels/base/device.h"

namespace meshloom::comm {

/// There is one per rank, for all of its groups; used by the rank's training thread. It outlives
/// its groups' use and ends before the ProcessGroups. Derived classes say what memory it is and how
/// peers reach it: HostSymmetricMemory that of a host.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory();
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;

  /// Returns the device that the memory lies in.
  virtual Device device() const = 0;

  /// Returns why the ranks of a group do not share memory, told by whoever made the group; empty:
  /// all that were made do.
  const std::string& refusal() const { return refusal_; }
  void note_refusal(std::string why) { refusal_ = std::move(why); }

  /// Allocates new memory of this rank alone, at least `bytes`, zero, touched, aligned to 2 MiB
  /// where at least that large; peers hear of it by a rendezvous. It is given back when the caller
  /// and all buffers of all ranks have let go of it. Throws ResourceExhausted naming the sizes,
  /// IoError if the system refuses.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  /// Tells whether `bytes` at `data` lie in one piece of what this rank has allocated and somebody
  /// holds.
  virtual bool holds(const void* data, std::size_t bytes) = 0;

  /// Makes the signals of a group. Every rank of the group calls it; again, it gives the same one
  /// and communicates nothing. Where the ranks do not share memory the group is there, too: see
  /// SymmetricGroup::enabled(). Where it throws on some rank because one has failed, all ranks call
  /// disable() before they try again.
  SymmetricGroup& enable(ProcessGroup& group);
  /// Returns null if the group was never enabled.
  SymmetricGroup* enabled(const ProcessGroup& group) const;
  /// Is called before the group ends, on every rank, with none of its waits open. Buffers stay.
  void disable(const ProcessGroup& group) { groups_.erase(&group); }

 protected:
  SymmetricMemory() = default;
  /// Every rank of the group calls it.
  virtual std::unique_ptr<SymmetricGroup> make_group(ProcessGroup& group) = 0;
  /// The destructor of a derived class calls it: its groups use what it holds.
  void disable_all() { groups_.clear(); }

 private:
  std::string refusal_;
  std::map<const ProcessGroup*, std::unique_ptr<SymmetricGroup>> groups_;
};

}  // namespace meshloom::comm
