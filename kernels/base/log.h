// SPDX-License-Identifier: Apache-2.0
// The text log: one spdlog logger per process, with the rank in every line.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace meshloom {

struct LogOptions {
  int rank = 0;
  std::string level = "info";  ///< trace, debug, info, warning, error, off
  std::string file;            ///< rotated (10 MiB, 3 files); empty: standard error only
};

/// Sets up the process's default logger, each message as one_line. Call before other threads log.
void init_log(const LogOptions& options);

/// Returns the text with control characters and bytes that are not UTF-8 as \n and \xNN: what a
/// client sends can neither begin a line of the log nor steer a terminal.
std::string one_line(std::string_view text);

}  // namespace meshloom
