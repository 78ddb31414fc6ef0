// SPDX-License-Identifier: Apache-2.0
// A program that the daemon's owner has started for an event.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace meshloom::control {

struct HookCall {
  std::string command;                                         ///< of a shell
  std::string input;                                           ///< of its standard input
  std::vector<std::pair<std::string, std::string>> variables;  ///< beside the daemon's own
  std::chrono::milliseconds limit = std::chrono::seconds(30);
};

struct HookEnd {
  bool ok = false;
  std::string what;    ///< "exit code 1", "killed after 30 s"
  std::string output;  ///< the first 16 KiB of both its outputs, as text
};

/// Runs the command by /bin/sh, in a session of its own, without the daemon's descriptors and
/// without the variables by which Open MPI would take it for a rank. All that is left of its
/// session when it has ended, when `limit` has passed or when `stop` is set, is killed; what has
/// left the session is nobody's any more. One that floods its output is read on, so that it does
/// not hang. Throws IoError if there can be no process.
HookEnd run_hook(const HookCall& call, const std::atomic<bool>& stop);

}  // namespace meshloom::control
