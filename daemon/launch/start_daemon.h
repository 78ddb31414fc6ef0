// SPDX-License-Identifier: Apache-2.0
// Starts a daemon in the background and waits until it serves.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "daemon/base/unique_fd.h"
#include "daemon/launch/launch_command.h"
#include "daemon/launch/launched_processes.h"

namespace meshloom::launch {

/// While it lives nobody else starts a daemon on the folder, which is made (mode 0700) where it is
/// missing.
class LaunchTurn {
 public:
  /// Throws FailedPrecondition: STATE_DIR_NOT_OWN if the folder is another account's,
  /// DAEMON_RUNS if a daemon runs on it, be it one of another host, or another start is under way,
  /// and what find_on() throws; IoError if it cannot be made.
  explicit LaunchTurn(const std::filesystem::path& state_dir);

 private:
  base::UniqueFd lock_;
};

/// Starts mpirun in a session of its own, without a terminal: no Ctrl-C reaches it, and it outlives
/// this program. It gets no descriptor that this program was started with. What it prints goes to
/// STATE_DIR/logs/daemon.log; that of the start before is kept as daemon.log.1. Its record is
/// written before mpirun runs. Throws IoError if it cannot be started.
LaunchRecord start_daemon(const LaunchOptions& options, const LaunchTurn& turn);

enum class StartEnd {
  kServes,
  kEnded,        ///< mpirun did, before it served
  kInterrupted,  ///< as the caller asked for
  kTooLate,
};

struct StartWait {
  std::chrono::milliseconds patience{0};
  std::function<void()> slow;  ///< called once if it takes some seconds
  /// Tells whether the daemon at this address serves. It is asked again and again once there is an
  /// address.
  std::function<bool(const std::string& address)> serves;
  std::function<bool()> interrupted;
};

StartEnd wait_until_serving(const LaunchRecord& record, const StartWait& wait);

}  // namespace meshloom::launch
