// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/stop_signal.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "daemon/control/host/launcher_end.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

// These ask for a stop: people and service managers send the first two, a terminal that closes
// sends SIGHUP, schedulers of clusters send SIGUSR1 or SIGXCPU some time before a limit, and
// supplies of power send SIGPWR.
constexpr int kStops[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGXCPU, SIGPWR};

// This signal ends the listener's thread where the process has sent it to itself. Others may send
// it, too, and are told that it means nothing.
constexpr int kEndSignal = SIGUSR2;

bool is_ignored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kStops) sigaddset(&set, signal);
  for (const int signal : {SIGCONT, kEndSignal}) sigaddset(&set, signal);
  // nohup has SIGHUP ignored, and a blocked signal would be kept for the listener all the same.
  if (is_ignored(SIGHUP)) sigdelset(&set, SIGHUP);
  return set;
}

std::string describe(int signal, int sender) {
  return fmt::format("SIG{} from pid {}", ::sigabbrev_np(signal), sender);
}

/// The next of these signals: 0 once the time has passed, if there is one, and -1 where the wait
/// was broken off.
int wait_for(const sigset_t& set, const std::chrono::milliseconds* time, siginfo_t* info) {
  timespec limit{};
  if (time != nullptr) limit.tv_nsec = std::chrono::nanoseconds(*time).count();
  const int signal =
      time == nullptr ? ::sigwaitinfo(&set, info) : ::sigtimedwait(&set, info, &limit);
  return signal < 0 && errno == EAGAIN ? 0 : signal;
}

}  // namespace

void prepare_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGXFSZ, SIG_IGN);
}

StopSignalListener::StopSignalListener(StopRequests& stops)
    : stops_(stops), thread_([this] { listen(); }) {}

StopSignalListener::~StopSignalListener() {
  pthread_kill(thread_.native_handle(), kEndSignal);
  thread_.join();
}

void StopSignalListener::listen() {
  const sigset_t set = stop_signals();
  bool was_stopped = false;
  LauncherEnd end;
  while (true) {
    siginfo_t info{};
    const int signal = wait_for(set, end.is_suspected() ? &LauncherEnd::kInterval : nullptr, &info);
    if (signal < 0) {
      // A wait for signals ends with EINTR when the process was stopped and goes on, before it
      // gives the SIGCONT that made it go on.
      was_stopped = true;
    } else if (signal == 0) {
      if (end.look())
        stops_.request_stop(
            fmt::format("mpirun (pid {}) ends its ranks: it was told to stop, or a rank has died",
                        end.launcher()));
    } else if (signal == kEndSignal) {
      if (info.si_pid == ::getpid()) return;
      spdlog::warn("{} has no meaning here and changes nothing", describe(signal, info.si_pid));
    } else if (signal == SIGCONT) {
      if (std::exchange(was_stopped, false))
        spdlog::info("goes on after a stop: {}", describe(signal, info.si_pid));
      end.suspect(info.si_pid);
    } else {
      stops_.request_stop(describe(signal, info.si_pid));
    }
  }
}

}  // namespace meshloom::control
