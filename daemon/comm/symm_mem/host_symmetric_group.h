// SPDX-License-Identifier: Apache-2.0
// HostSymmetricGroup: signals in flags that the ranks of a host map, and their segments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/comm/symm_mem/host_symmetric_memory.h"
#include "daemon/comm/symm_mem/signal_pad.h"
#include "daemon/comm/symm_mem/signal_watch.h"
#include "daemon/comm/symm_mem/symmetric_group.h"

namespace meshloom::comm {

/// HostSymmetricMemory::enable makes one for a group. Every group has a pad of its own. What ends
/// waits: signal_watch.h.
class HostSymmetricGroup final : public SymmetricGroup {
 public:
  /// Every rank of the group calls it. `memory` outlives it.
  HostSymmetricGroup(ProcessGroup& group, HostSymmetricMemory& memory);

  std::string why_no_multicast() const override;
  std::string summary() const override;
  void put_signal(int destination, int channel, Timeout timeout = {}) override;
  void wait_signal(int source, int channel, Timeout timeout = {}) override;
  void barrier(int channel, Timeout timeout = {}) override;
  std::shared_ptr<SymmetricBuffer> rendezvous(const TensorView& mine) override;
  std::shared_ptr<SymmetricBuffer> workspace(std::size_t bytes) override;

  /// Returns the way by which this rank reaches the memory of another one; kNone for itself.
  Sharing sharing(int rank) const;
  /// Attaches a further segment of `rank`, which has told its name, in memory that is shared
  /// already for instance; mapped when it is first asked for, without help of its owner, and not
  /// again as long as somebody holds it. The owner holds it meanwhile. Where descriptors go over
  /// sockets it waits, as signals do, for one that is still on its way; else throws CommError
  /// (SYMM_MEM_UNAVAILABLE) where it cannot be opened.
  std::shared_ptr<Segment> attach(int rank, const SegmentName& name, Timeout timeout = {});

 private:
  void make_pads();
  void begin_signal(const char* name, int peer, int channel);
  /// Begins anew if the ranks have recovered from a failure since the last call.
  void follow_generation();
  SignalWatch::Call call(const char* name, int channel, Timeout timeout) const;
  std::size_t slot(int channel, int peer) const {
    return static_cast<std::size_t>(channel * size() + peer);
  }
  const SignalPad& pad(int rank) const { return pads_[static_cast<std::size_t>(rank)]; }

  HostSymmetricMemory& memory_;
  GatheredSegments pad_memory_;
  std::vector<SignalPad> pads_;  ///< by rank
  std::optional<SignalWatch> watch_;
  std::uint64_t generation_ = 0;
  std::vector<std::uint64_t> puts_, takes_, barriers_;  ///< by slot; barriers by channel
  std::shared_ptr<SymmetricBuffer> workspace_;
};

}  // namespace meshloom::comm
