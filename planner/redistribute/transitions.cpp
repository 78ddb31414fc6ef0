// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/transitions.h"

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

constexpr HoldCode kSum = hold_partial(PartialOp::kSum);
constexpr HoldCode kAvg = hold_partial(PartialOp::kAvg);

bool is_sum_or_avg(const Placement& p) { return p.is_partial() && adds(p.partial); }

/// Shardings of `tensor_dim` by `mesh_dim`, plain or by an order that one of the ends has there.
void append_shards(const SearchSpace& space, const LayoutState& base, int mesh_dim, int tensor_dim,
                   StepKind kind, std::vector<Move>& moves) {
  for (const DimOrderChoice order :
       {DimOrderChoice::kPlain, DimOrderChoice::kFrom, DimOrderChoice::kTo}) {
    if (order != DimOrderChoice::kPlain && (base.shards[static_cast<std::size_t>(tensor_dim)] > 0 ||
                                            !space.offers(base, mesh_dim, tensor_dim, order)))
      continue;
    Move& move = moves.emplace_back(Move{kind, DimList(mesh_dim), base});
    move.next.push_shard(mesh_dim, tensor_dim, order);
  }
}

}  // namespace

void check_partial_changes(const DTensorSpec& from, const DTensorSpec& to) {
  for (int m = 0; m < to.mesh().ndim(); ++m) {
    const Placement &a = from.placement(m), &b = to.placement(m);
    if (!b.is_partial() || a == b || to.mesh().dim_size(m) == 1) continue;
    const bool legal =
        a.is_partial() ? is_sum_or_avg(a) && is_sum_or_avg(b) : b.partial == PartialOp::kSum;
    check(
        legal,
        "redistribute: mesh dim {} cannot change from {} to the Partial {}; S and R become P(sum) "
        "alone, P(sum) and P(avg) change into each other",
        m, to_string(a), to_string(b));
  }
}

std::optional<StepKind> step_between(HoldCode from, HoldCode to) {
  if (is_partial_code(to)) {
    const bool converts = (from == kSum && to == kAvg) || (from == kAvg && to == kSum);
    if (is_partial_code(from))
      return converts ? std::optional(StepKind::kConvertPartial) : std::nullopt;
    return to == kSum ? std::optional(StepKind::kToPartial) : std::nullopt;
  }
  if (is_shard_code(to)) {
    if (is_partial_code(from)) return StepKind::kReduceScatter;
    return is_shard_code(from) ? StepKind::kAllToAll : StepKind::kSlice;
  }
  return is_partial_code(from) ? StepKind::kAllReduce : StepKind::kAllGather;
}

void append_one_step_moves(const SearchSpace& space, const AllowedShards& allowed,
                           const LayoutState& state, std::vector<Move>& moves) {
  for (int m = 0; m < space.dims(); ++m) {
    const auto i = static_cast<std::size_t>(m);
    const HoldCode code = state.hold[i], wanted = space.goal().hold[i];
    if (is_shard_code(code) && !state.is_last_sharding_dim(m)) continue;
    LayoutState base = state;
    if (is_shard_code(code)) {
      base.pop_shard(m);
    } else {
      base.set_hold(m, kHoldReplicate);
    }
    if (code != kHoldReplicate)
      moves.push_back({*step_between(code, kHoldReplicate), DimList(m), base});
    for (int d = 0; d < space.shape().size(); ++d)
      if ((allowed[i] >> d & 1U) != 0 && code != hold_shard(d))
        append_shards(space, base, m, d, *step_between(code, hold_shard(d)), moves);
    if (!is_partial_code(wanted) || wanted == code) continue;
    if (const std::optional<StepKind> kind = step_between(code, wanted)) {
      Move& move = moves.emplace_back(Move{*kind, DimList(m), base});
      move.next.set_hold(m, wanted);
    }
  }
}

}  // namespace meshloom::planner
