// SPDX-License-Identifier: Apache-2.0
// Moves over several mesh dims at once, which PyTorch's planner does not have: collectives merged
// on flattened mesh dims, and shards exchanged directly.
#pragma once

#include <vector>

#include "planner/redistribute/transitions.h"

namespace meshloom::planner {

/// Appends to `moves`, from `state`:
/// - all_reduce over any two or more mesh dims of one Partial op (sum and avg count as one);
/// - reduce_scatter of such onto one tensor dim, the new cuts in the goal's order or ascending;
/// - all_gather of the last two or more cuts of one tensor dim;
/// - all_to_all among the last cuts of any tensor dims: mesh dims that the goal shards go where and
///   in which order the goal has them, the others stay behind or gather on one tensor dim; also of
///   a single mesh dim to another dim order of the same cut.
/// Within the group of such a move every element is held once before, and once after.
void append_wide_moves(const SearchSpace&, const AllowedCuts&, const LayoutState& state,
                       std::vector<Move>& moves);

}  // namespace meshloom::planner
