// SPDX-License-Identifier: Apache-2.0
// How many ranks a mesh has.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace meshloom::planner {

/// Returns the product of the sizes, each at least 1; none if it is more than 2^31 - 1, which no
/// mesh has.
inline std::optional<int> rank_count(std::span<const int> sizes) {
  std::int64_t count = 1;
  for (const int size : sizes) {
    count *= size;
    if (count > std::numeric_limits<int>::max()) return std::nullopt;
  }
  return static_cast<int>(count);
}

}  // namespace meshloom::planner
