// SPDX-License-Identifier: Apache-2.0
// Child processes with time limits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace meshloom::e2e {

using Arguments = std::vector<std::string>;

/// A program in a session of its own, its output in a file. Killed with its whole session at the
/// end of the scope.
class Process {
 public:
  Process(const Arguments& arguments, const std::filesystem::path& output,
          const std::filesystem::path& errors = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// The exit code (128 + n after signal n); nothing where it still runs after the timeout.
  std::optional<int> wait(std::chrono::milliseconds timeout);

 private:
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

struct CommandResult {
  int exit_code = -1;
  std::string output;
  std::string errors;
};

/// Runs a command to its end; exit code -1 where it took longer than the timeout.
CommandResult run_command(const Arguments& arguments, std::chrono::milliseconds timeout);

std::string read_file(const std::filesystem::path& path);

/// False for a process that has ended, whether or not somebody has waited for it.
bool is_alive(pid_t pid);

/// A number of /proc/PID/status, such as "VmRSS" (KiB) or "Threads"; 0 if it is not there.
std::int64_t status_number(pid_t pid, const std::string& name);

/// Local addresses of the TCP sockets, of both families, on which a process listens: "IP:PORT" as
/// /proc writes them, in hexadecimal ("0100007F:1CFC" is 127.0.0.1:7420).
std::vector<std::string> tcp_listeners(pid_t pid);
/// The port of such an address.
int port_of(const std::string& listener);

/// Polls until the condition holds; false after the timeout.
template <typename Condition>
bool eventually(std::chrono::milliseconds timeout, Condition condition);

void sleep_ms(int milliseconds);

template <typename Condition>
bool eventually(std::chrono::milliseconds timeout, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    sleep_ms(5);
  }
  return true;
}

}  // namespace meshloom::e2e
