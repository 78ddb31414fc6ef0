// SPDX-License-Identifier: Apache-2.0
// Sizes of memory and disk as texts to users tell them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace meshloom::control {

/// "12.5 MiB", "3.0 GiB".
inline std::string bytes_text(double bytes) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  return bytes < kGiB ? fmt::format("{:.1f} MiB", bytes / kMiB)
                      : fmt::format("{:.1f} GiB", bytes / kGiB);
}
inline std::string bytes_text(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

}  // namespace meshloom::control
