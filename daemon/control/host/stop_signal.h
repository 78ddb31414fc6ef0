// SPDX-License-Identifier: Apache-2.0
// StopSignalListener: a thread that hears the signals by which the daemon is asked to stop.
#pragma once

#include <string>
#include <thread>

#include "daemon/control/host/stop_requests.h"

namespace meshloom::control {

/// Keeps the signals that StopSignalListener hears from interrupting any thread, and ignores
/// SIGXFSZ: a write beyond the limit of file sizes fails, and the process goes on. main() calls
/// this first of all, since threads inherit what it sets.
void prepare_signals();

/// A thread that waits for signals. Everything in this class may be called by any thread.
class StopSignalListener {
 public:
  /// Asks `stops`, which outlives it, on the listener's thread, with each SIGTERM, SIGINT, SIGHUP
  /// (unless it was ignored when the process started, as nohup has it), SIGUSR1, SIGXCPU and
  /// SIGPWR. It is asked also when mpirun begins to end its ranks (launcher_end.h), which is some
  /// time before mpirun sends them SIGTERM. SIGUSR2 is logged, and so is the SIGCONT that ends a
  /// stop.
  explicit StopSignalListener(StopRequests& stops);
  ~StopSignalListener();
  StopSignalListener(const StopSignalListener&) = delete;
  StopSignalListener& operator=(const StopSignalListener&) = delete;

 private:
  void listen();

  StopRequests& stops_;
  std::thread thread_;
};

}  // namespace meshloom::control
