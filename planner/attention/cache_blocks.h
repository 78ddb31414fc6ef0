// SPDX-License-Identifier: Apache-2.0
// Which positions of a growing sequence each rank keeps the keys and values of.
#pragma once

#include "planner/index_ranges.h"

namespace meshloom::planner {

/// Rank p / kCacheBlock mod ranks keeps position p: wherever a sequence ends, no rank keeps more
/// than a block beyond its share.
inline constexpr std::int64_t kCacheBlock = 64;

/// Those of `positions` that a rank keeps, ascending and counted from positions.begin.
IndexRanges kept_by_rank(int rank, int ranks, ShardRange positions);
/// How many these are.
std::int64_t count_kept_by_rank(int rank, int ranks, ShardRange positions);

}  // namespace meshloom::planner
