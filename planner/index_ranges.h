// SPDX-License-Identifier: Apache-2.0
// IndexRanges: elements of one dim as a list of ranges.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/shard.h"

namespace meshloom::planner {

/// IndexRanges list the elements [begin, end) of a dim, in the order in which a part holds them.
using IndexRanges = std::vector<ShardRange>;

std::int64_t total_size(const IndexRanges&);
/// Adds `range` at the end: merged with the last one if it follows on, left out if empty.
void append_range(IndexRanges&, ShardRange range);
/// Returns elements [wanted.begin, wanted.end) counted along the list.
IndexRanges sub_ranges(const IndexRanges&, ShardRange wanted);

}  // namespace meshloom::planner
