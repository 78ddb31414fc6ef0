// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/stop_signal.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

// People and service managers send the first two, a terminal that closes SIGHUP, schedulers of
// clusters SIGUSR1 or SIGXCPU some time before a limit, supplies of power SIGPWR.
constexpr int kStops[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGXCPU, SIGPWR};

// Sent by this process to itself, it ends the listener's thread. Others may send it, too, and are
// told that it means nothing.
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
  // Of nohup. A blocked signal would be kept for the listener although it is ignored.
  if (is_ignored(SIGHUP)) sigdelset(&set, SIGHUP);
  return set;
}

std::string describe(int signal, int sender) {
  if (signal == SIGCONT)
    return fmt::format("mpirun (pid {}) ends its ranks: it was told to stop, or a rank has died",
                       sender);
  return fmt::format("SIG{} from pid {}", ::sigabbrev_np(signal), sender);
}

}  // namespace

void prepare_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGXFSZ, SIG_IGN);
}

StopSignalListener::StopSignalListener(bool parent_is_launcher, OnStop on_stop)
    : parent_is_launcher_(parent_is_launcher),
      on_stop_(std::move(on_stop)),
      thread_([this] { listen(); }) {}

StopSignalListener::~StopSignalListener() {
  pthread_kill(thread_.native_handle(), kEndSignal);
  thread_.join();
}

void StopSignalListener::listen() {
  const sigset_t set = stop_signals();
  bool was_stopped = false;
  while (true) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&set, &info);
    if (signal < 0) {
      // A wait for signals ends with EINTR when the process was stopped and goes on, before it
      // gives the SIGCONT that made it go on.
      was_stopped = true;
    } else if (signal == kEndSignal) {
      if (info.si_pid == ::getpid()) return;
      spdlog::warn("{} has no meaning here and changes nothing", describe(signal, info.si_pid));
    } else if (signal != SIGCONT) {
      on_stop_(describe(signal, info.si_pid));
    } else if (std::exchange(was_stopped, false)) {
      spdlog::info("goes on after a stop: SIGCONT from pid {}", info.si_pid);
    } else if (parent_is_launcher_ && info.si_pid == ::getppid()) {
      on_stop_(describe(signal, info.si_pid));
    }
  }
}

}  // namespace meshloom::control
