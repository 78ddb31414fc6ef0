// SPDX-License-Identifier: Apache-2.0
// Cheapest path between two layouts: A* over (placements, shard order).
//
// Hart, Nilsson, Raphael: A Formal Basis for the Heuristic Determination of Minimum Cost Paths,
// 1968. Both lower bounds used here are consistent, so the first path to reach the goal is
// cheapest.
#pragma once

#include <vector>

#include "planner/redistribute/cost.h"
#include "planner/redistribute/search_space.h"

namespace meshloom::planner {

/// The cheapest moves in unit costs over one-step transitions; of equally cheap ones the shortest.
std::vector<Move> cheapest_unit_moves(const SearchSpace&);

/// The cheapest moves in seconds over one-step and wide moves. A mesh dim cuts, on the way, those
/// tensor dims only that it cuts at either end and the one that is best to park on (the first that
/// is long enough for all ranks, else the longest).
std::vector<Move> cheapest_byte_moves(const SearchSpace&, const StepCost&);

}  // namespace meshloom::planner
