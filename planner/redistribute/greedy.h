// SPDX-License-Identifier: Apache-2.0
// The greedy planner of PyTorch's DTensor: mesh dim by mesh dim, without looking ahead.
#pragma once

#include <vector>

#include "planner/redistribute/search_space.h"

namespace meshloom::planner {

/// True if the greedy planner applies: both shard orders left to right, no dim orders.
bool greedy_applies(const SearchSpace&);

/// The moves from start to goal, in order; same counts as `_redistribute.py`. First from the inner
/// to the outer mesh dims: a mesh dim goes to its target, or is replicated if its target is
/// S(d) and the outer mesh dims do not yet shard d as the target has it. Then outer to inner for
/// what is left.
std::vector<Move> greedy_moves(const SearchSpace&);

}  // namespace meshloom::planner
