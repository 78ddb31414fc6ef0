// SPDX-License-Identifier: Apache-2.0
// What the kernel says of a process in /proc/PID/stat (proc(5)).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace meshloom::base {

struct ProcessStat {
  std::string name;  ///< of its program, 15 bytes at most
  char state = '?';
  pid_t parent = 0, session = 0;
  std::int64_t user_ticks = 0, system_ticks = 0;  ///< of CPU, sysconf(_SC_CLK_TCK) a second
  std::uint64_t start_time = 0;  ///< in ticks since boot: tells it from a later one of its number

  /// Tells whether the process has ended, also where nobody has waited for it yet.
  bool has_ended() const { return state == 'Z' || state == 'X'; }
};

/// Reads `file`, which is /proc/PID/stat. Nothing if there is no such process, also where it goes
/// while its file is read. Throws nothing but std::bad_alloc.
std::optional<ProcessStat> read_process_stat(const std::filesystem::path& file);
std::optional<ProcessStat> read_process_stat(pid_t pid);

}  // namespace meshloom::base
