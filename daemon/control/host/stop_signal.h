// SPDX-License-Identifier: Apache-2.0
// StopSignalListener: a thread that hears the signals by which the daemon is asked to stop.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace meshloom::control {

/// Keeps the signals that StopSignalListener hears from interrupting any thread, and ignores
/// SIGXFSZ: a write beyond the limit of file sizes fails, and the process goes on. main() calls
/// this first of all, since threads inherit what it sets.
void prepare_signals();

/// A thread that waits for signals. Everything in this class may be called by any thread.
class StopSignalListener {
 public:
  using OnStop = std::function<void(const std::string& cause)>;

  /// Calls on_stop, on the listener's thread, with each SIGTERM, SIGINT, SIGHUP (unless it was
  /// ignored when the process started, as nohup has it), SIGUSR1, SIGXCPU and SIGPWR. It is called
  /// also when mpirun begins to end its ranks (launcher_end.h), which is some time before mpirun
  /// sends them SIGTERM. SIGUSR2 is logged, and so is the SIGCONT that ends a stop.
  explicit StopSignalListener(OnStop on_stop);
  ~StopSignalListener();
  StopSignalListener(const StopSignalListener&) = delete;
  StopSignalListener& operator=(const StopSignalListener&) = delete;

 private:
  void listen();

  OnStop on_stop_;
  std::thread thread_;
};

}  // namespace meshloom::control
