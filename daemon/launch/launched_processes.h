// SPDX-License-Identifier: Apache-2.0
// The processes of a launch on this host: mpirun and all that it has started.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <vector>

#include "daemon/launch/launch_record.h"

namespace meshloom::launch {

class LaunchedProcesses {
 public:
  explicit LaunchedProcesses(LaunchRecord record) : record_(std::move(record)) {}

  const LaunchRecord& record() const { return record_; }
  /// Tells whether mpirun still runs.
  bool launcher_runs() const { return runs(record_.launcher); }
  /// Returns the processes of the launch that still run: the session that mpirun leads. Where
  /// mpirun has gone, a session of its number may be another one: then only processes that were
  /// given this state dir count.
  std::vector<pid_t> members() const;
  bool ended() const;
  /// Tells whether a process of this host, such as a rank, belongs to the launch.
  bool owns(pid_t pid) const;

  /// Asks mpirun by SIGTERM to end its ranks: it kills them after odls_base_sigkill_timeout (Open
  /// MPI 4) or half a second (Open MPI 5). Where mpirun has gone, asks the members themselves.
  void ask_to_end() const;
  /// Kills all members, again and again until none is left or `patience` is over.
  bool kill_all(std::chrono::milliseconds patience) const;
  /// Calls ask_to_end(), and kill_all() what is left after `grace`. False if something is left even
  /// so.
  bool end(std::chrono::milliseconds grace) const;

 private:
  LaunchRecord record_;
};

/// Polls until the condition holds; false after `patience`.
bool wait_until(std::chrono::milliseconds patience, const std::function<bool()>& condition);

}  // namespace meshloom::launch
