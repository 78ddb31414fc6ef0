// SPDX-License-Identifier: Apache-2.0
// The cheapest plan by bytes, found without any skill.
#pragma once

#include "planner/redistribute/cost.h"
#include "planner/redistribute/search_space.h"

namespace meshloom::planner {

/// Dijkstra over all layouts there are, every pair of which is judged by what a step may do: no
/// bound, no list of moves, nothing left out. For meshes of up to four dims and tensors of two or
/// three.
double reference_seconds(const SearchSpace& space, const StepCost& cost);

}  // namespace meshloom::planner
