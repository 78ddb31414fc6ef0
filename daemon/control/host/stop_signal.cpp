// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/stop_signal.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

// Ends the listener's thread; sent by this process to itself only.
constexpr int kEndSignal = SIGUSR2;

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGCONT, kEndSignal}) sigaddset(&set, signal);
  return set;
}

std::string describe(int signal, int sender) {
  if (signal == SIGCONT)
    return fmt::format("mpirun (pid {}) ends its ranks: it was told to stop, or a rank has died",
                       sender);
  return fmt::format("{} from pid {}", signal == SIGTERM ? "SIGTERM" : "SIGINT", sender);
}

}  // namespace

void block_stop_signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
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
  while (true) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&set, &info);
    if (signal < 0) continue;
    if (signal == kEndSignal) {
      if (info.si_pid == ::getpid()) return;
    } else if (signal != SIGCONT || (parent_is_launcher_ && info.si_pid == ::getppid())) {
      on_stop_(describe(signal, info.si_pid));
    }
  }
}

}  // namespace meshloom::control
