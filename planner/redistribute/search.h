// SPDX-License-Identifier: Apache-2.0
// Cheapest path between two layouts: A* over (placements, shard order).
// Both lower bounds are consistent, so the first path to reach the goal is cheapest.
#pragma once

#include <vector>

#include "planner/redistribute/cost.h"
#include "planner/redistribute/search_space.h"
#include "planner/redistribute/transitions.h"

namespace meshloom::planner {

/// The cheapest moves in unit costs over one-step transitions; of equally cheap ones the shortest.
std::vector<Move> cheapest_unit_moves(const SearchSpace&);

/// The cheapest moves in seconds of all that `SearchMoves` has.
std::vector<Move> cheapest_byte_moves(const SearchSpace&, const StepCost&);

}  // namespace meshloom::planner
