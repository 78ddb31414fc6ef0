// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/wide_moves.h"

#include <bit>

namespace meshloom::planner {
namespace {

constexpr int kStay = -1;

DimList ascending(unsigned mask) {
  DimList dims;
  for (int m = 0; mask >> m != 0; ++m)
    if ((mask >> m & 1U) != 0) dims.push_back(m);
  return dims;
}

/// The mesh dims of `mask`, those that the goal has on `tensor_dim` first and in its order.
DimList in_goal_order(const SearchSpace& space, unsigned mask, int tensor_dim) {
  const LayoutState& goal = space.goal();
  const auto d = static_cast<std::size_t>(tensor_dim);
  DimList dims;
  for (std::size_t i = 0; i < goal.cuts[d]; ++i)
    if ((mask >> goal.cutter[d][i] & 1U) != 0) dims.push_back(goal.cutter[d][i]);
  for (const int m : ascending(mask & ~dims.mask())) dims.push_back(m);
  return dims;
}

/// The order by which `mesh_dim` may cut `tensor_dim` in the goal; plain where another cut is
/// outside it.
CutOrder goal_cut_order(const SearchSpace& space, const LayoutState& state, int mesh_dim,
                        int tensor_dim) {
  const auto m = static_cast<std::size_t>(mesh_dim);
  const LayoutState& goal = space.goal();
  const bool first = state.cuts[static_cast<std::size_t>(tensor_dim)] == 0;
  return first && goal.hold[m] == hold_shard(tensor_dim) ? goal.order[m] : CutOrder::kPlain;
}

bool allows(const AllowedCuts& allowed, unsigned mask, int tensor_dim) {
  for (const int m : ascending(mask))
    if ((allowed[static_cast<std::size_t>(m)] >> tensor_dim & 1U) == 0) return false;
  return true;
}

/// Mesh dims of `state` that are Partial and reduce together.
unsigned partial_mask(const SearchSpace& space, const LayoutState& state, bool linear,
                      PartialOp op) {
  unsigned mask = 0;
  for (int m = 0; m < space.dims(); ++m) {
    const HoldCode code = state.hold[static_cast<std::size_t>(m)];
    const bool fits =
        linear ? code == hold_partial(PartialOp::kSum) || code == hold_partial(PartialOp::kAvg)
               : code == hold_partial(op);
    if (fits) mask |= 1U << m;
  }
  return mask;
}

void append_reductions(const SearchSpace& space, const AllowedCuts& allowed,
                       const LayoutState& state, unsigned all, std::vector<Move>& moves) {
  for (unsigned mask = all; mask != 0; mask = (mask - 1) & all) {
    if (std::popcount(mask) < 2) continue;
    LayoutState reduced = state;
    for (const int m : ascending(mask)) reduced.hold[static_cast<std::size_t>(m)] = kHoldReplicate;
    moves.push_back({StepKind::kAllReduce, ascending(mask), reduced});
    for (int d = 0; d < space.shape().size(); ++d) {
      if (!allows(allowed, mask, d)) continue;
      Move& move = moves.emplace_back(
          Move{StepKind::kReduceScatter, in_goal_order(space, mask, d), reduced});
      for (const int m : move.dims)
        move.next.push_cut(m, d, goal_cut_order(space, move.next, m, d));
    }
  }
}

void append_gathers(const SearchSpace& space, const LayoutState& state, std::vector<Move>& moves) {
  for (int d = 0; d < space.shape().size(); ++d) {
    const auto i = static_cast<std::size_t>(d);
    LayoutState next = state;
    for (int taken = 1; taken <= state.cuts[i]; ++taken) {
      next.pop_cut(next.last_cutter(d));
      if (taken < 2) continue;
      DimList dims;
      for (int c = state.cuts[i] - taken; c < state.cuts[i]; ++c)
        dims.push_back(state.cutter[i][static_cast<std::size_t>(c)]);
      moves.push_back({StepKind::kAllGather, dims, next});
    }
  }
}

/// Exchanges among the cuts that were taken off `base`, whose cuts stay.
class Exchanges {
 public:
  Exchanges(const SearchSpace& space, const AllowedCuts& allowed, const LayoutState& state,
            std::vector<Move>& moves)
      : space_(space),
        allowed_(allowed),
        state_(state),
        key_(state.key(space.dims())),
        moves_(moves) {}

  /// Takes 0, 1, ... cuts off `tensor_dim` and goes on with the next one.
  void choose(const LayoutState& base, unsigned mask, int tensor_dim) {
    if (tensor_dim == space_.shape().size()) {
      if (mask != 0) place(base, mask);
      return;
    }
    choose(base, mask, tensor_dim + 1);
    LayoutState fewer = base;
    unsigned taken = mask;
    while (fewer.cuts[static_cast<std::size_t>(tensor_dim)] > 0) {
      const int m = fewer.last_cutter(tensor_dim);
      fewer.pop_cut(m);
      taken |= 1U << m;
      choose(fewer, taken, tensor_dim + 1);
    }
  }

 private:
  void place(const LayoutState& base, unsigned mask) {
    unsigned left = 0;
    LayoutState settled = base;
    for (const int m : ascending(mask))
      if (!is_shard_code(space_.goal().hold[static_cast<std::size_t>(m)])) left |= 1U << m;
    for (int d = 0; d < space_.shape().size(); ++d) {
      const auto i = static_cast<std::size_t>(d);
      const LayoutState& goal = space_.goal();
      for (std::size_t c = 0; c < goal.cuts[i]; ++c) {
        const int m = goal.cutter[i][c];
        if ((mask >> m & 1U) != 0) settled.push_cut(m, d, goal_cut_order(space_, settled, m, d));
      }
    }
    append(settled, mask, left, kStay);
    for (int d = 0; left != 0 && d < space_.shape().size(); ++d)
      if (allows(allowed_, left, d)) append(settled, mask, left, d);
  }

  void append(LayoutState next, unsigned mask, unsigned left, int tensor_dim) {
    for (const int m : ascending(left)) {
      const int stays = shard_dim_of(state_.hold[static_cast<std::size_t>(m)]);
      next.push_cut(m, tensor_dim == kStay ? stays : tensor_dim);
    }
    if (next.key(space_.dims()) == key_) return;
    const DimList dims = ascending(mask);
    moves_.push_back({StepKind::kAllToAll, dims, next});
  }

  const SearchSpace& space_;
  const AllowedCuts& allowed_;
  const LayoutState& state_;
  std::uint64_t key_;
  std::vector<Move>& moves_;
};

}  // namespace

void append_wide_moves(const SearchSpace& space, const AllowedCuts& allowed,
                       const LayoutState& state, std::vector<Move>& moves) {
  append_reductions(space, allowed, state, partial_mask(space, state, true, PartialOp::kSum),
                    moves);
  for (const PartialOp op : {PartialOp::kMax, PartialOp::kMin})
    append_reductions(space, allowed, state, partial_mask(space, state, false, op), moves);
  append_gathers(space, state, moves);
  Exchanges(space, allowed, state, moves).choose(state, 0, 0);
}

}  // namespace meshloom::planner
