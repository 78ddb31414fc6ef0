// SPDX-License-Identifier: Apache-2.0
// SymmetricMemory: the memory of a rank that its peers inside the host can read and write.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/comm/symm_mem/segment_directory.h"
#include "daemon/comm/symm_mem/symmetric_group.h"

namespace meshloom::comm {

struct SymmetricOptions {
  SharingMode sharing = SharingMode::kAuto;
  PeerProcess::Watch watch = PeerProcess::Watch::kAuto;
  int channels = 32;                           ///< of each group; the same on all ranks
  std::chrono::milliseconds timeout{100'000};  ///< of waits that name none
  const AbortFlag* abort = nullptr;            ///< ends all waits; outlives the memory
};

/// One per rank, for all of its groups; used by the rank's training thread. It outlives its groups'
/// use and ends before the ProcessGroups.
class SymmetricMemory {
 public:
  explicit SymmetricMemory(const SymmetricOptions& options = {});
  ~SymmetricMemory();
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;

  const SymmetricOptions& options() const { return options_; }
  SegmentDirectory& directory() { return directory_; }

  /// Why the ranks of a group do not share memory, told by whoever made the group; empty: all that
  /// were made do.
  const std::string& refusal() const { return refusal_; }
  void note_refusal(std::string why) { refusal_ = std::move(why); }

  /// New memory of this rank alone, as Segment::create; peers hear of it by a rendezvous, or by its
  /// name (SymmetricGroup::attach). It is given back when the caller and all buffers of all ranks
  /// have let go of it.
  std::shared_ptr<Segment> allocate(std::size_t bytes);
  /// The segment of this rank that holds `bytes` at `data`; null if there is none.
  std::shared_ptr<Segment> find(const void* data, std::size_t bytes);

  /// Makes the signals of a group. Every rank of the group calls it; again, it gives the same one
  /// and communicates nothing. Where the ranks do not share memory the group is there, too: see
  /// SymmetricGroup::enabled(). Where it throws on some rank because one has failed, all ranks call
  /// disable() before they try again.
  SymmetricGroup& enable(ProcessGroup& group);
  /// Null: it was never enabled.
  SymmetricGroup* enabled(const ProcessGroup& group) const;
  /// Before the group ends, on every rank, with none of its waits open. Buffers stay.
  void disable(const ProcessGroup& group);

 private:
  SymmetricOptions options_;
  SegmentDirectory directory_;
  std::string refusal_;
  std::vector<std::weak_ptr<Segment>> segments_;
  std::map<const ProcessGroup*, std::unique_ptr<SymmetricGroup>> groups_;
};

}  // namespace meshloom::comm
