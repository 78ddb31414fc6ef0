// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/search.h"

#include <algorithm>
#include <limits>

#include "kernels/base/error.h"
#include "planner/redistribute/search_graph.h"
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

// Makes the shorter of equally cheap plans win: far fewer than 1000 steps.
constexpr double kUnitStep = 1e-3;

/// True if the shardings of `tensor_dim` up to and including `place` are those of the goal.
bool in_place(const SearchSpace& space, const LayoutState& state, int tensor_dim, int place) {
  const auto d = static_cast<std::size_t>(tensor_dim);
  const LayoutState& goal = space.goal();
  if (goal.shards[d] <= place) return false;
  for (std::size_t c = 0; c <= static_cast<std::size_t>(place); ++c) {
    const std::size_t m = state.sharding_dim[d][c];
    if (goal.sharding_dim[d][c] != m || goal.order[m] != state.order[m]) return false;
  }
  return true;
}

/// PyTorch's transitions in unit costs.
class UnitProblem {
 public:
  explicit UnitProblem(const SearchSpace& space) : space_(space) {
    // The tensor dims that either end shards, and as many others to park on as there are mesh dims:
    // more are the same again.
    unsigned mask = 0;
    int spare = space.dims();
    for (int d = 0; d < space.shape().size(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (space.start().shards[i] > 0 || space.goal().shards[i] > 0 || spare-- > 0) mask |= 1U << d;
    }
    allowed_.fill(static_cast<std::uint8_t>(mask));
  }

  template <typename Reach>
  void expand(const LayoutState& state, double, double, const Reach& reach) {
    moves_.clear();
    append_one_step_moves(space_, allowed_, state, moves_);
    for (const Move& move : moves_)
      reach(move.kind, move.dims, move.next, unit_cost(move.kind) + kUnitStep);
  }

  /// A step moves one mesh dim. P -> R costs at least 4 in all, P -> S and S -> R 2, S -> S 1, and
  /// a shard that has to leave its place and come back 2.
  double bound(const LayoutState& state) const {
    double bound = 0.0;
    for (int m = 0; m < space_.dims(); ++m) {
      const auto i = static_cast<std::size_t>(m);
      const HoldCode at = state.hold[i], wanted = space_.goal().hold[i];
      if (is_partial_code(at) && !is_partial_code(wanted))
        bound += is_shard_code(wanted) ? 2.0 : 4.0;
      else if (is_shard_code(at) && wanted == kHoldReplicate)
        bound += 2.0;
      else if (is_shard_code(at) && is_shard_code(wanted) && at != wanted)
        bound += 1.0;
    }
    for (int d = 0; d < space_.shape().size(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      for (int c = 0; c < state.shards[i]; ++c) {
        const int m = state.sharding_dim[i][static_cast<std::size_t>(c)];
        if (space_.goal().hold[static_cast<std::size_t>(m)] == hold_shard(d) &&
            !in_place(space_, state, d, c))
          bound += 2.0;
      }
    }
    return bound;
  }

 private:
  const SearchSpace& space_;
  AllowedShards allowed_{};
  std::vector<Move> moves_;
};

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

std::vector<Move> cheapest_unit_moves(const SearchSpace& space) {
  UnitProblem problem(space);
  return AStar(space, problem, std::numeric_limits<double>::infinity()).run();
}

}  // namespace meshloom::planner
