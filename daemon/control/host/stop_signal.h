// SPDX-License-Identifier: Apache-2.0
// Signals that ask the daemon to stop, heard by a thread of its own.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace meshloom::control {

/// Keeps the signals that StopSignalListener hears from interrupting any thread, and ignores
/// SIGXFSZ: a write beyond the limit of file sizes fails, and the process goes on. Call first thing
/// in main: threads inherit it.
void prepare_signals();

class StopSignalListener {
 public:
  using OnStop = std::function<void(const std::string& cause)>;

  /// Calls on_stop with each SIGTERM, SIGINT, SIGHUP (unless it was ignored when the process
  /// started, as nohup does), SIGUSR1, SIGXCPU and SIGPWR. mpirun sends its ranks SIGCONT before it
  /// ends them, a second before SIGTERM: from the parent process that is a warning and counts as a
  /// request to stop, too, unless this process was stopped and goes on by it. SIGUSR2 is logged.
  StopSignalListener(bool parent_is_launcher, OnStop on_stop);
  ~StopSignalListener();
  StopSignalListener(const StopSignalListener&) = delete;
  StopSignalListener& operator=(const StopSignalListener&) = delete;

 private:
  void listen();

  bool parent_is_launcher_;
  OnStop on_stop_;
  std::thread thread_;
};

}  // namespace meshloom::control
