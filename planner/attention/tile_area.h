// SPDX-License-Identifier: Apache-2.0
// Work of attention as a kernel does it: in tiles of queries by keys.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/attention/schedule.h"

namespace meshloom::planner {

/// Queries and keys of a tile of the CPU's kernel.
inline constexpr std::int64_t kAttentionTile = 96;

/// Returns how many tiles a rank computes: those of its queries by the keys of each step, in which
/// any pair sees each other. `parts`: of all ranks, queries and keys alike.
std::int64_t tile_area(int rank, const std::vector<IndexRanges>& parts, const RowMask& row);

/// Returns the mean over the largest number of tiles of a rank: 1 is perfect; 1 if nothing is seen.
double tile_balance_of(const std::vector<IndexRanges>& parts, const RowMask& row);

}  // namespace meshloom::planner
