// SPDX-License-Identifier: Apache-2.0
// Numbers of a config or a request that must lie in a range: InvalidArgument with the field.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "daemon/base/field_error.h"

namespace meshloom::base {

/// Refuses a value that is not finite or not in [low, high], or [low, high) if `high_open`.
inline void check_range(const std::string& field, double value, double low, double high,
                        bool high_open = false) {
  const bool ok =
      std::isfinite(value) && value >= low && (high_open ? value < high : value <= high);
  if (!ok)
    refuse_field(field, "must be in [{}, {}{}, got {}", low, high, high_open ? ")" : "]", value);
}

inline void check_at_most(const std::string& field, std::int64_t value, std::int64_t most) {
  if (value > most) refuse_field(field, "must be at most {}, got {}", most, value);
}

/// Refuses a count below `low`, or so large that products of sizes would not stay inside 63 bits.
inline void check_count(const std::string& field, std::int64_t value, std::int64_t low) {
  constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;
  if (value < low) refuse_field(field, "must be at least {}, got {}", low, value);
  if (value > kMaxSize) refuse_field(field, "must be at most {} (2^40), got {}", kMaxSize, value);
}

}  // namespace meshloom::base
