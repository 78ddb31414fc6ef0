// SPDX-License-Identifier: Apache-2.0
// Steps that change or take away the layout of what has one, and do nothing on one rank.
#include <fmt/format.h>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/redistribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "tests/unit/dtensor/random_steps.h"

namespace meshloom::dtensor {
namespace {

/// Where x may go: also into P(sum), but from the Partials that only a sum can become.
planner::Placements random_placements(const Tensor& x, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto below = [&](int limit) {
    return static_cast<int>(rng() % static_cast<std::uint64_t>(limit));
  };
  const planner::DTensorSpec& spec = *x.layout()->spec;
  bool sums_only = true;
  for (const planner::Placement& p : spec.placements())
    sums_only = sums_only && (!p.is_partial() || p.partial == planner::PartialOp::kSum);
  planner::Placements placements(spec.placements().size());
  for (planner::Placement& p : placements) {
    const int kind = below(10);
    if (kind < 6 && x.ndim() > 0)
      p = planner::Placement::shard(below(x.ndim()));
    else if (kind == 9 && sums_only)
      p = planner::Placement::partial_of(planner::PartialOp::kSum);
  }
  return placements;
}

/// Taken apart on every rank and put together again.
Tensor rewrapped(const Tensor& x) {
  const planner::DTensorSpec& spec = *x.layout()->spec;
  // from_local takes orders of shardings, not of elements.
  if (spec.has_dim_orders()) return x;
  auto& engine = dynamic_cast<DistributedEngine&>(*x.layout()->engine);
  return from_local(to_local(x), engine, spec.placements(),
                    {.shape = x.shape(),
                     .strides = contiguous_strides(x.shape()),
                     .order = spec.default_order() ? planner::ShardOrder() : spec.shard_order()});
}

}  // namespace

void ProgramBuilder::relayout(const Ref& x) {
  program_.redistributes = true;
  const std::uint64_t seed = rng_();
  if (chance(0.3))
    return step("to_local and from_local", {x}, [](Inputs in) -> Outputs {
      return {in[0].has_layout() ? rewrapped(in[0]) : in[0]};
    });
  const bool in_flight = chance(0.3);
  step(fmt::format("redistribute by {}{}", seed, in_flight ? " in flight" : ""), {x},
       [=](Inputs in) -> Outputs {
         if (!in[0].has_layout()) return {in[0]};
         const planner::Placements to = random_placements(in[0], seed);
         return {in_flight ? redistribute_async(in[0], to).wait() : redistribute(in[0], to)};
       });
}

}  // namespace meshloom::dtensor
