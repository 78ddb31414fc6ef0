// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/peer_process.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "daemon/base/process_stat.h"

namespace meshloom::comm {

std::uint64_t own_start_time() {
  const auto stat = base::read_process_stat("/proc/self/stat");
  return stat ? stat->start_time : 0;
}

std::uint64_t own_pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

PeerProcess::PeerProcess(std::int64_t pid, std::uint64_t start_time, std::uint64_t pid_namespace,
                         Watch watch)
    : pid_(pid), start_time_(start_time) {
  if (watch != Watch::kStartTime)
    pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  // Looked at after the pidfd is open: if the peer is still itself now, the pidfd is of it.
  const auto stat = base::read_process_stat(static_cast<pid_t>(pid));
  visible_ = start_time != 0 && stat && stat->start_time == start_time;
  if (!visible_) pidfd_.reset();
  by_proc_ = visible_ && !pidfd_ && watch != Watch::kPidfd;
  ended_before_ =
      !visible_ && start_time != 0 && pid_namespace != 0 && pid_namespace == own_pid_namespace();
}

bool PeerProcess::gone() const {
  if (pidfd_) {
    pollfd one{pidfd_.get(), POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
  }
  return ended_before_ || (by_proc_ && state() == State::kGone);
}

PeerProcess::State PeerProcess::state() const {
  if (ended_before_) return State::kGone;
  if (!visible_) return State::kUnknown;
  const auto stat = base::read_process_stat(static_cast<pid_t>(pid_));
  if (!stat || stat->start_time != start_time_ || stat->has_ended()) return State::kGone;
  return stat->state == 'T' || stat->state == 't' ? State::kStopped : State::kRunning;
}

const char* PeerProcess::watched_by() const {
  if (pidfd_) return "pidfd";
  return by_proc_ ? "/proc start time" : "nothing";
}

const char* to_string(PeerProcess::State state) {
  switch (state) {
    case PeerProcess::State::kRunning: return "running";
    case PeerProcess::State::kStopped: return "stopped (SIGSTOP or a debugger)";
    case PeerProcess::State::kGone: return "gone";
    case PeerProcess::State::kUnknown: break;
  }
  return "not visible";
}

}  // namespace meshloom::comm
