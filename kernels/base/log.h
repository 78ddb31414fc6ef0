// SPDX-License-Identifier: Apache-2.0
// The text log: one spdlog logger per process, with the rank in every line.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace meshloom {

struct LogOptions {
  int rank = 0;
  std::string level = "info";  ///< trace, debug, info, warning, error, off
  std::string file;            ///< rotated (10 MiB, 3 files); empty: standard error only
};

/// Sets up the process's default logger. Call once, before other threads log.
void init_log(const LogOptions& options);

}  // namespace meshloom
