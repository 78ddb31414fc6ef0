// SPDX-License-Identifier: Apache-2.0
// The time of day for records that programs read.
#pragma once

#include <fmt/chrono.h>

#include <chrono>
#include <string>

namespace meshloom::base {

/// Now, as RFC 3339 in UTC with milliseconds: "2026-01-31T12:00:00.250Z".
inline std::string wall_time() {
  const auto now = std::chrono::system_clock::now();
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(now)), since.count() % 1000);
}

}  // namespace meshloom::base
