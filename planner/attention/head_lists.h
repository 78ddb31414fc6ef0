// SPDX-License-Identifier: Apache-2.0
// Which heads each of some neighbouring ranks computes when they exchange places for heads.
#pragma once

#include <cstdint>
#include <vector>

namespace meshloom::planner {

/// HeadLists are the heads of each neighbour, in order.
using HeadLists = std::vector<std::vector<std::int64_t>>;

/// Deals `heads` query heads as evenly as possible, the first neighbours first.
HeadLists query_heads_of(std::int64_t heads, int neighbours);
/// Returns the kv heads that these query heads read, `group` of them one kv head: each once, in
/// order, if every query head then finds its own by the ratio of their numbers; else one per query
/// head.
HeadLists key_heads_of(const HeadLists& query_heads, std::int64_t group);

}  // namespace meshloom::planner
