// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/search.h"

#include <limits>

#include "planner/redistribute/search_graph.h"

namespace meshloom::planner {
namespace {

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
  explicit UnitProblem(const SearchSpace& space) : space_(space), allowed_(useful_shards(space)) {}

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
  /// The tensor dims that either end shards, and as many others to park on as there are mesh dims:
  /// more are the same again.
  static AllowedShards useful_shards(const SearchSpace& space) {
    unsigned mask = 0;
    int spare = space.dims();
    for (int d = 0; d < space.shape().size(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (space.start().shards[i] > 0 || space.goal().shards[i] > 0 || spare-- > 0) mask |= 1U << d;
    }
    AllowedShards allowed{};
    allowed.fill(static_cast<std::uint8_t>(mask));
    return allowed;
  }

  const SearchSpace& space_;
  AllowedShards allowed_;
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> cheapest_unit_moves(const SearchSpace& space) {
  UnitProblem problem(space);
  return AStar(space, problem, std::numeric_limits<double>::infinity()).run();
}

}  // namespace meshloom::planner
