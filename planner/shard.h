// SPDX-License-Identifier: Apache-2.0
// The one rule by which a size is sharded over ranks: chunk = ceil(n / parts), last shards smaller
// or empty.
#pragma once

#include <algorithm>
#include <cstdint>

namespace meshloom::planner {

/// ShardRange has elements [begin, end) of one dim.
struct ShardRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

/// Returns what part `index` of `parts` holds of `n` elements (n >= 0, parts >= 1, 0 <= index <
/// parts).
constexpr ShardRange shard_range(std::int64_t n, std::int64_t parts, std::int64_t index) {
  const std::int64_t chunk = n / parts + (n % parts != 0 ? 1 : 0);
  if (chunk == 0 || index > n / chunk) return {n, n};
  const std::int64_t begin = chunk * index;
  return {begin, n - begin < chunk ? n : begin + chunk};
}

}  // namespace meshloom::planner
