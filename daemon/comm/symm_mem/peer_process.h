// SPDX-License-Identifier: Apache-2.0
// PeerProcess: whether the process of another rank lives, is stopped, or is gone.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/unique_fd.h"

namespace meshloom::comm {

/// Returns when this process was started, in clock ticks since boot (field 22 of /proc/self/stat):
/// with the pid it names a process for good. 0 where /proc is closed. Read anew in every call,
/// since a forked child has another one.
std::uint64_t own_start_time();
/// Names the PID namespace of this process (inode of /proc/self/ns/pid); 0 where /proc is closed.
std::uint64_t own_pid_namespace();

/// PeerProcess is another process of the host. Used by one thread.
class PeerProcess {
 public:
  enum class State : std::uint8_t { kRunning, kStopped, kGone, kUnknown };
  enum class Watch : std::uint8_t {
    kAuto,       ///< pidfd where the kernel offers it, else the start time
    kPidfd,      ///< nothing where it does not
    kStartTime,  ///< /proc/PID/stat alone
  };

  /// `pid`, `start_time` and `pid_namespace` are what the peer told of itself. A process that
  /// cannot be seen stays kUnknown (another PID namespace, /proc closed); in this one's namespace
  /// it has ended since.
  PeerProcess(std::int64_t pid, std::uint64_t start_time, std::uint64_t pid_namespace,
              Watch watch = Watch::kAuto);

  std::int64_t pid() const { return pid_; }
  /// Tells whether it has ended; one system call with a pidfd, a few otherwise.
  bool gone() const;
  /// Reads /proc too: for messages.
  State state() const;
  /// Returns "pidfd", "/proc start time" or "nothing".
  const char* watched_by() const;

 private:
  std::int64_t pid_;
  std::uint64_t start_time_;
  base::UniqueFd pidfd_;
  bool visible_ = false;  ///< /proc shows it with its start time
  bool by_proc_ = false;
  bool ended_before_ = false;  ///< before this object was made
};

/// Returns "running", "stopped (SIGSTOP or a debugger)", "gone" or "not visible".
const char* to_string(PeerProcess::State state);

}  // namespace meshloom::comm
