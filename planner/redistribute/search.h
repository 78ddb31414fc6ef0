// SPDX-License-Identifier: Apache-2.0
// Paths between two layouts: that of the greedy planner of PyTorch's DTensor, mesh dim by mesh dim
// without looking ahead, and the cheapest ones, by A* over (placements, shard order). Both lower
// bounds are consistent, so the first path to reach the goal is cheapest.
#pragma once

#include <vector>

#include "planner/redistribute/cost.h"
#include "planner/redistribute/search_space.h"

namespace meshloom::planner {

/// Returns true if the greedy planner applies: both shard orders left to right, no dim orders.
bool greedy_applies(const SearchSpace&);

/// Returns the moves from start to goal, in order; same counts as `_redistribute.py`. First from
/// the inner to the outer mesh dims: a mesh dim goes to its target, or is replicated if its target
/// is S(d) and the outer mesh dims do not yet shard d as the target has it. Then outer to inner for
/// what is left.
std::vector<Move> greedy_moves(const SearchSpace&);

/// Returns the cheapest moves in unit costs over one-step transitions; of equally cheap ones the
/// shortest.
std::vector<Move> cheapest_unit_moves(const SearchSpace&);

/// Returns the cheapest moves in seconds of all that `SearchMoves` has.
std::vector<Move> cheapest_byte_moves(const SearchSpace&, const StepCost&);

}  // namespace meshloom::planner
