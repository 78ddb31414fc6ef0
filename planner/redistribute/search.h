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
#include "planner/redistribute/transitions.h"

namespace meshloom::planner {

/// The cheapest moves in unit costs over one-step transitions; of equally cheap ones the shortest.
std::vector<Move> cheapest_unit_moves(const SearchSpace&);

/// Which tensor dims mesh dims cut on the way in a search by bytes. On meshes of one or two dims
/// all; on larger ones, to stay fast, those that the mesh dim cuts at either end and one or two to
/// park on (the first that are long enough for all ranks, else the longest).
AllowedCuts byte_search_cuts(const SearchSpace&);

/// The cheapest moves in seconds over one-step and wide moves within `byte_search_cuts`.
std::vector<Move> cheapest_byte_moves(const SearchSpace&, const StepCost&);

}  // namespace meshloom::planner
