// SPDX-License-Identifier: Apache-2.0
// Random masks and documents, and what they let a query see, element by element.
#pragma once

#include <random>
#include <span>

#include "planner/attention/mask.h"

namespace meshloom::planner::test {

using Generator = std::mt19937_64;

inline std::int64_t draw(Generator& generator, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(generator);
}

inline AttentionMask random_mask(Generator& generator) {
  AttentionMask mask;
  mask.is_causal = draw(generator, 0, 1) == 1;
  mask.shift = draw(generator, 0, 2) == 0 ? draw(generator, -9, 9) : 0;
  if (draw(generator, 0, 2) == 0) mask.window_left = draw(generator, 0, 12);
  if (draw(generator, 0, 2) == 0) mask.window_right = draw(generator, 0, 12);
  return mask;
}

/// Ids that may come again later in the row.
inline std::vector<std::int64_t> random_ids(Generator& generator, std::int64_t size,
                                            std::int64_t longest) {
  std::vector<std::int64_t> ids;
  while (static_cast<std::int64_t>(ids.size()) < size) {
    const std::int64_t id = draw(generator, -4, 4);
    const std::int64_t run = draw(generator, 1, longest);
    for (std::int64_t i = 0; i < run && static_cast<std::int64_t>(ids.size()) < size; ++i)
      ids.push_back(id);
  }
  return ids;
}

/// `ids` empty: no documents.
inline bool sees(const AttentionMask& mask, std::span<const std::int64_t> ids, std::int64_t query,
                 std::int64_t key) {
  const std::int64_t distance = key - query - mask.shift;
  if (mask.is_causal && distance > 0) return false;
  if (mask.window_left >= 0 && distance < -mask.window_left) return false;
  if (mask.window_right >= 0 && distance > mask.window_right) return false;
  return ids.empty() || ids[static_cast<std::size_t>(query)] == ids[static_cast<std::size_t>(key)];
}

}  // namespace meshloom::planner::test
