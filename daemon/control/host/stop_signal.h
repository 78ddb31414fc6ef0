// SPDX-License-Identifier: Apache-2.0
// Signals that ask the daemon to stop, heard by a thread of its own.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace meshloom::control {

/// Keeps SIGTERM, SIGINT and SIGCONT from interrupting any thread. Call first thing in main:
/// threads inherit it.
void block_stop_signals();

class StopSignalListener {
 public:
  using OnStop = std::function<void(const std::string& cause)>;

  /// Calls on_stop with each SIGTERM and SIGINT. mpirun sends its ranks SIGCONT before it ends
  /// them, a second before SIGTERM: from the parent process that is a warning and counts as a
  /// request to stop, too.
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
