// SPDX-License-Identifier: Apache-2.0
// Which positions of a growing sequence each rank keeps the keys and values of.
#pragma once

#include "planner/index_ranges.h"

namespace meshloom::planner {

/// Rank p / kCacheBlock mod ranks keeps position p: wherever a sequence ends, no rank keeps more
/// than a block beyond its share.
inline constexpr std::int64_t kCacheBlock = 64;

/// Returns those of `positions` that a rank keeps, ascending and counted from positions.begin.
IndexRanges kept_by_rank(int rank, int ranks, ShardRange positions);
/// Returns how many of `positions` a rank keeps.
std::int64_t count_kept_by_rank(int rank, int ranks, ShardRange positions);
/// Returns the rank that keeps a position.
int rank_of_position(std::int64_t position, int ranks);

/// Tells whether the ranks compute these positions of a prompt together, each those that it keeps:
/// if none has more than three quarters of them. What is left to save then is not worth exchanging
/// keys for.
bool shares_pass(int ranks, ShardRange positions);
/// Returns the fewest positions, at least `least`, of which all ranks keep equally many wherever a
/// block of the first rank begins.
std::int64_t even_pass(int ranks, std::int64_t least);

}  // namespace meshloom::planner
