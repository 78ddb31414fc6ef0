// SPDX-License-Identifier: Apache-2.0
// SignalWatch: a wait for a flag of a peer, and all that can end it.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/backoff.h"
#include "daemon/comm/process_group.h"
#include "daemon/comm/symm_mem/peer_process.h"
#include "daemon/comm/symm_mem/segment_directory.h"

namespace meshloom::comm {

/// There is one per group and rank; used by the rank's training thread.
class SignalWatch {
 public:
  struct Call {
    const char* name;  ///< "wait_signal"
    int channel;       ///< -1: it has none
    std::chrono::milliseconds timeout;
  };

  /// `processes` by rank; null for this rank and for threads of this process. `group`, `abort`
  /// (may be null) and `directory` outlive it.
  SignalWatch(ProcessGroup& group, const AbortFlag* abort, SegmentDirectory& directory,
              std::vector<std::unique_ptr<PeerProcess>> processes)
      : group_(group), abort_(abort), directory_(directory), processes_(std::move(processes)) {}

  /// Waits until `ready()`; `missing()` gives the ranks that it waits for. All collectives of this
  /// rank move meanwhile, and descriptors that it owes, since a peer may wait for those first.
  /// Throws
  /// - DeadlineExceeded (SYMM_MEM_TIMEOUT) naming call, channel, group, rank, and each missing peer
  ///   with what its process does,
  /// - CommError (SYMM_MEM_PEER_GONE) once the process of a missing peer has ended, within
  ///   milliseconds,
  /// - PeerFailed once a rank of the world has failed, Aborted if the abort flag is raised.
  /// A flag that was set before the trouble counts: what a peer did before it died is kept.
  template <typename Ready, typename Missing>
  void wait(const Call& call, Ready&& ready, Missing&& missing) {
    Backoff backoff;
    for (int spin = 0; spin < kSpins; ++spin, backoff.pause())
      if (ready()) return;
    Progress progress{Clock::now(), {}, {}};
    while (true) {
      const std::exception_ptr trouble = look(call, missing(), progress);
      if (ready()) return;
      if (trouble) std::rethrow_exception(trouble);
      backoff.pause();
    }
  }

  const PeerProcess* process(int rank) const {
    return processes_[static_cast<std::size_t>(rank)].get();
  }
  /// Returns "wait_signal on channel 3 of group 'dp' on rank 1 of 4"
  std::string describe(const Call& call) const;

 private:
  static constexpr int kSpins = 20;

  struct Progress {
    Clock::time_point last_look;
    Clock::duration waited;
    Clock::time_point processes_seen;
  };

  std::exception_ptr look(const Call& call, const std::vector<int>& missing, Progress& progress);
  std::exception_ptr find_gone(const Call& call, const std::vector<int>& missing) const;
  std::exception_ptr timed_out(const Call& call, const std::vector<int>& missing) const;

  ProcessGroup& group_;
  const AbortFlag* abort_;
  SegmentDirectory& directory_;
  std::vector<std::unique_ptr<PeerProcess>> processes_;
};

}  // namespace meshloom::comm
