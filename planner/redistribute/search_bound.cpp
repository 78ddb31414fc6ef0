// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/search_bound.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace meshloom::planner {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

/// Bit m of `mask` at bit 2 m.
unsigned spread(unsigned mask) {
  mask = (mask | mask << 4) & 0x0f0fU;
  mask = (mask | mask << 2) & 0x3333U;
  return (mask | mask << 1) & 0x5555U;
}

/// Calls `visit` with every part of `mask` that is not empty.
template <typename Visit>
void for_parts(unsigned mask, const Visit& visit) {
  for (unsigned part = mask; part != 0; part = (part - 1) & mask) visit(part);
}

int kind_of(HoldCode partial) {
  if (partial == hold_partial(PartialOp::kMax)) return 1;
  return partial == hold_partial(PartialOp::kMin) ? 2 : 0;
}

}  // namespace

ByteBound::ByteBound(const SearchSpace& space, const StepCost& cost) : space_(space), cost_(cost) {
  const LayoutState& goal = space.goal();
  for (int m = 0; m < space.dims(); ++m) {
    const auto i = static_cast<std::size_t>(m);
    const HoldCode wanted = goal.hold[i];
    if (is_shard_code(wanted)) goal_shards_ |= 1U << m;
    if (is_partial_code(wanted)) goal_partials_ |= 1U << m;
    // A legal change between Partials is one within a kind.
    for (const HoldCode code : {wanted, space.start().hold[i]})
      if (is_partial_code(code)) kinds_[static_cast<std::size_t>(kind_of(code))] |= 1U << m;
  }
  for (int d = 0; d < space.shape().size(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    unsigned outer = 0;
    for (std::size_t c = 0; c < goal.shards[i]; ++c) {
      outer_[goal.sharding_dim[i][c]] = outer;
      outer |= 1U << goal.sharding_dim[i][c];
    }
  }
  solve();
}

unsigned ByteBound::partials(unsigned mask) const {
  return spread(mask & goal_partials_) * kAtGoal | spread(mask & ~goal_partials_) * kPartial;
}

unsigned ByteBound::class_of(const LayoutState& state) const {
  const LayoutState& goal = space_.goal();
  unsigned code = 0, partial = 0;
  for (int m = 0; m < space_.dims(); ++m) {
    const HoldCode hold = state.hold[static_cast<std::size_t>(m)];
    if (is_shard_code(hold)) code |= kShard << (2 * m);
    if (is_partial_code(hold)) partial |= 1U << m;
  }
  if (partial != 0) code |= partials(partial);
  for (unsigned left = goal_shards_; left != 0; left &= left - 1) {
    const auto m = static_cast<std::size_t>(__builtin_ctz(left));
    const auto d = static_cast<std::size_t>(shard_dim_of(goal.hold[m]));
    // The outermost sharding of a tensor dim; the ones inside it follow.
    if (goal.sharding_dim[d][0] != m) continue;
    for (std::size_t c = 0; c < goal.shards[d] && c < state.shards[d]; ++c) {
      const std::size_t sharding_dim = goal.sharding_dim[d][c];
      if (state.sharding_dim[d][c] != sharding_dim ||
          state.order[sharding_dim] != goal.order[sharding_dim])
        break;
      code ^= (kShard ^ kAtGoal) << (2 * sharding_dim);
    }
  }
  return code;
}

double ByteBound::with_shards(const LayoutState& state, unsigned left) const {
  return bounds_[class_of(state) | spread(left & goal_shards_) * kAtGoal |
                 spread(left & ~goal_shards_) * kShard];
}

ByteBound::Masks ByteBound::masks_of(unsigned code) const {
  Masks masks;
  for (int m = 0; m < space_.dims(); ++m) {
    const unsigned held = code >> (2 * m) & 3U;
    if (held == kReplicated) masks.replicated |= 1U << m;
    if (held == kAtGoal) masks.at_goal |= 1U << m;
    if (held == kShard) masks.shards |= 1U << m;
  }
  masks.movable = masks.shards;
  masks.shards |= masks.at_goal & goal_shards_;
  for (int m = 0; m < space_.dims(); ++m)
    if ((masks.at_goal & goal_shards_ & 1U << m) != 0 &&
        (outer_[static_cast<std::size_t>(m)] & ~masks.at_goal) == 0)
      masks.movable |= 1U << m;
  return masks;
}

void ByteBound::relax(unsigned code, double cost) {
  if (cost >= bounds_[code]) return;
  bounds_[code] = cost;
  queue_.emplace_back(cost, code);
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

void ByteBound::solve() {
  const unsigned groups = 1U << space_.dims();
  double all = 1.0;
  for (const std::int64_t size : space_.shape()) all *= static_cast<double>(size);
  for (unsigned mask = 0; mask < groups; ++mask) {
    elements_.push_back(std::max(std::min(all, 1.0), all / cost_.ranks(mask)));
    // A group that holds more mesh dims than are needed is not dearer in every topology.
    double once = kUnbounded, each = kUnbounded;
    for_parts(groups - 1, [&](unsigned group) {
      if ((mask & ~group) != 0) return;
      const double fixed = cost_.least_seconds(StepKind::kAllToAll, group, 0.0, 0.0);
      once = std::min(once, fixed);
      each = std::min(each, cost_.least_seconds(StepKind::kAllToAll, group, 1.0, 1.0) - fixed);
    });
    exchange_.emplace_back(once, each);
  }
  bounds_.assign(std::size_t{1} << (2 * space_.dims()), kUnbounded);
  relax(class_of(space_.goal()), 0.0);
  while (!queue_.empty()) {
    const auto [bound, code] = queue_.front();
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    queue_.pop_back();
    if (bound > bounds_[code]) continue;
    const Masks masks = masks_of(code);
    before_gathers(code, masks);
    for (const unsigned kind : kinds_) before_reductions(code, masks, kind);
    before_exchanges(code, masks);
    before_local_steps(code, masks);
  }
}

void ByteBound::before_gathers(unsigned code, const Masks& masks) {
  for_parts(masks.replicated, [&](unsigned group) {
    const double cost = bounds_[code] + cost_.least_seconds(StepKind::kAllGather, group,
                                                            elements_[masks.shards | group],
                                                            elements_[masks.shards]);
    const unsigned goal = group & goal_shards_;
    relax(code | spread(group) * kShard, cost);
    for_parts(goal, [&](unsigned at_goal) {
      relax(code | spread(group & ~at_goal) * kShard | spread(at_goal) * kAtGoal, cost);
    });
  });
}

void ByteBound::before_reductions(unsigned code, const Masks& masks, unsigned kind) {
  const double here = elements_[masks.shards];
  for_parts(masks.replicated & kind, [&](unsigned group) {
    relax(code | partials(group),
          bounds_[code] + cost_.least_seconds(StepKind::kAllReduce, group, here, here));
  });
  const LayoutState& goal = space_.goal();
  for_parts(masks.movable & kind, [&](unsigned group) {
    // All of them shard one tensor dim.
    const unsigned at_goal = group & masks.at_goal;
    const bool together =
        at_goal == 0 || std::any_of(goal.shard_mask.begin(), goal.shard_mask.end(),
                                    [&](unsigned shards) { return (at_goal & ~shards) == 0; });
    if (!together) return;
    relax((code & ~(spread(group) * 3U)) | partials(group),
          bounds_[code] + cost_.least_seconds(StepKind::kReduceScatter, group,
                                              elements_[masks.shards & ~group], here));
  });
}

void ByteBound::before_exchanges(unsigned code, const Masks& masks) {
  for_parts(masks.movable & masks.at_goal, [&](unsigned moved) {
    const auto [once, each] = exchange_[moved];
    relax(code + spread(moved) * (kShard - kAtGoal),
          bounds_[code] + once + each * elements_[masks.shards]);
  });
}

void ByteBound::before_local_steps(unsigned code, const Masks& masks) {
  for (int m = 0; m < space_.dims(); ++m) {
    const unsigned bit = 1U << m, others = code & ~(3U << (2 * m));
    const double cost =
        bounds_[code] + cost_.least_seconds(StepKind::kSlice, bit, 0.0, elements_[masks.shards]);
    if ((masks.movable & bit) != 0) relax(others, cost);
    if ((masks.at_goal & goal_partials_ & bit) == 0) continue;
    relax(others, cost);
    relax(others | kShard << (2 * m), cost);
  }
}

}  // namespace meshloom::planner
