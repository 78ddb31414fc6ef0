// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/greedy.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "planner/redistribute/transitions.h"

namespace meshloom::planner {
namespace {

/// The mesh dims before `end` that shard `tensor_dim`, as a mask.
unsigned sharding_dims_before(const LayoutState& state, int tensor_dim, int end) {
  unsigned mask = 0;
  for (int m = 0; m < end; ++m)
    if (state.hold[static_cast<std::size_t>(m)] == hold_shard(tensor_dim)) mask |= 1U << m;
  return mask;
}

void step_to(LayoutState& state, int mesh_dim, HoldCode target, std::vector<Move>& moves) {
  const auto m = static_cast<std::size_t>(mesh_dim);
  if (state.hold[m] == target) return;
  const std::optional<StepKind> kind = step_between(state.hold[m], target);
  check_internal(kind.has_value(), "greedy: no step from hold {} to {}", state.hold[m], target);
  if (is_shard_code(state.hold[m])) {
    check_internal(state.is_last_sharding_dim(mesh_dim),
                   "greedy: mesh dim {} is not the last sharding", mesh_dim);
    state.pop_shard(mesh_dim);
  }
  state.set_hold(mesh_dim, is_shard_code(target) ? kHoldReplicate : target);
  if (is_shard_code(target)) state.push_shard(mesh_dim, shard_dim_of(target));
  moves.push_back({*kind, DimList(mesh_dim), state});
}

}  // namespace

bool greedy_applies(const SearchSpace& space) {
  return space.from()->default_order() && space.to()->default_order() && !space.has_dim_orders();
}

std::vector<Move> greedy_moves(const SearchSpace& space) {
  std::vector<Move> moves;
  LayoutState state = space.start();
  const LayoutState& goal = space.goal();
  const bool sharded = std::any_of(state.hold.begin(), state.hold.end(), is_shard_code);
  for (int m = space.dims() - 1; sharded && space.dims() > 1 && m >= 0; --m) {
    HoldCode target = goal.hold[static_cast<std::size_t>(m)];
    if (is_shard_code(target) && sharding_dims_before(state, shard_dim_of(target), m) !=
                                     sharding_dims_before(goal, shard_dim_of(target), m))
      target = kHoldReplicate;
    step_to(state, m, target, moves);
  }
  for (int m = 0; m < space.dims(); ++m)
    step_to(state, m, goal.hold[static_cast<std::size_t>(m)], moves);
  return moves;
}

}  // namespace meshloom::planner
