// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/peer_process.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace meshloom::comm {
namespace {

struct ProcessStatus {
  char state = '?';
  std::uint64_t start_time = 0;  ///< 0: there is no such process to be seen
};

ProcessStatus read_status(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  // Where the process goes after the file was opened, iterators of the stream would throw.
  std::string text;
  std::getline(file, text, '\0');
  // The second field is the name in brackets, which may hold blanks and brackets itself.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStatus status;
  fields >> status.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> status.start_time;
  return status;
}

}  // namespace

std::uint64_t own_start_time() { return read_status("self").start_time; }

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
  const ProcessStatus status = read_status(std::to_string(pid));
  visible_ = start_time != 0 && status.start_time == start_time;
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
  const ProcessStatus status = read_status(std::to_string(pid_));
  if (status.start_time != start_time_ || status.state == 'Z' || status.state == 'X')
    return State::kGone;
  return status.state == 'T' || status.state == 't' ? State::kStopped : State::kRunning;
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
