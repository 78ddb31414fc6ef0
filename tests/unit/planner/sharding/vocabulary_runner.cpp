// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/sharding/vocabulary_runner.h"

#include <algorithm>

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/shape.h"
#include "tests/unit/planner/sharding/op_runner.h"
#include "tests/unit/planner/sharding/simulated_ranks.h"

namespace meshloom::test {
namespace {

using planner::DTensorSpec;
using planner::OpId;
using planner::Placement;
using planner::ShardingDecision;

/// The layout after gathering over the mesh dims of the distributed implementation.
DTensorSpec gathered(const DTensorSpec& spec, const ShardingDecision& decision) {
  planner::Placements placements = spec.placements();
  for (const planner::RoleDims& role : decision.roles)
    for (const int m : role.mesh_dims)
      placements[static_cast<std::size_t>(m)] = Placement::replicate();
  planner::ShardOrder order;
  std::vector<planner::DimOrderPtr> orders(placements.size());
  for (const planner::DimShardOrder& entry : spec.shard_order()) {
    planner::DimShardOrder kept{entry.tensor_dim, {}};
    for (const int m : entry.mesh_dims)
      if (placements[static_cast<std::size_t>(m)].is_shard()) kept.mesh_dims.push_back(m);
    if (!kept.mesh_dims.empty() && kept.mesh_dims.front() == entry.mesh_dims.front())
      orders[static_cast<std::size_t>(kept.mesh_dims.front())] =
          spec.dim_order(kept.mesh_dims.front());
    if (!kept.mesh_dims.empty()) order.push_back(kept);
  }
  return DTensorSpec(spec.mesh_ptr(), placements, spec.shape(), order, orders);
}

/// `others` with the elements where `where` is not negative taken from own: own[where[i]].
Tensor put(const Tensor& own, const Tensor& others, const std::vector<double>& where) {
  const std::int64_t count = own.numel(), total = others.numel();
  std::vector<double> select(static_cast<std::size_t>(count * total), 0.0), rest;
  for (std::int64_t g = 0; g < total; ++g) {
    const auto from = static_cast<std::int64_t>(where[static_cast<std::size_t>(g)]);
    if (from >= 0) select[static_cast<std::size_t>(from * total + g)] = 1.0;
    rest.push_back(from >= 0 ? 0.0 : 1.0);
  }
  ExecutionContext& context = own.context();
  const Tensor kept =
      ops::mul(ops::reshape(others, {total}), from_values(context, {total}, rest, DType::kFloat64));
  const Tensor moved = ops::matmul(ops::reshape(own, {1, count}),
                                   from_values(context, {count, total}, select, DType::kFloat64));
  return ops::reshape(ops::add(kept, ops::reshape(moved, {total})), others.shape());
}

/// For every element that `whole` holds: its index in what `part` holds, or -1.
std::vector<double> places(const DTensorSpec& part, const DTensorSpec& whole,
                           const std::vector<int>& at, ExecutionContext& context) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < numel(part.shape()); ++i) numbers.push_back(static_cast<double>(i));
  const Tensor indices = from_values(context, part.shape(), numbers, DType::kFloat64);
  const std::vector<double> own = local_value(part, at, indices).to_vector();
  std::vector<double> result;
  for (const double index : local_value(whole, at, indices).to_vector()) {
    const auto found = std::find(own.begin(), own.end(), index);
    result.push_back(found == own.end() ? -1.0 : static_cast<double>(found - own.begin()));
  }
  return result;
}

Tensor logits_of(const planner::OpCall& call, const ShardingDecision& decision,
                 const std::vector<int>& at, const std::vector<Tensor>& x,
                 const std::vector<Tensor>& globals) {
  const DTensorSpec& first = *decision.inputs[0];
  ExecutionContext& context = x[0].context();
  if (call.op == OpId::kCrossEntropy) {
    const DTensorSpec all = gathered(first, decision);
    return put(x[0], local_value(all, at, globals[0]), places(first, all, at, context));
  }
  const DTensorSpec& weight = *decision.inputs[1];
  const DTensorSpec all = gathered(weight, decision);
  const Tensor others =
      ops::linear(x[0].detach(), local_value(all, at, globals[1]),
                  local_value(gathered(*decision.inputs[2], decision), at, globals[2]));
  if (x[1].size(0) == 0) return others;
  const Tensor own = ops::linear(x[0], x[1], x[2]);
  // Columns of the logits are rows of the weight: the same column for every row of hidden.
  std::vector<double> where;
  const std::vector<double> rows =
      places(*decision.inputs[2], gathered(*decision.inputs[2], decision), at, context);
  const auto columns = static_cast<std::int64_t>(rows.size());
  for (std::int64_t i = 0; i < others.numel(); ++i) {
    const double column = rows[static_cast<std::size_t>(i % columns)];
    where.push_back(column < 0 ? -1.0 : static_cast<double>(i / columns * own.size(-1)) + column);
  }
  return put(own, others, where);
}

}  // namespace

std::vector<Tensor> run_vocabulary_op(const planner::OpCall& call, const ShardingDecision& decision,
                                      const std::vector<int>& at, const std::vector<Tensor>& x,
                                      const std::vector<Tensor>& globals) {
  const Tensor logits = logits_of(call, decision, at, x, globals);
  const std::size_t ids = call.op == OpId::kCrossEntropy ? 1 : 3;
  const Tensor targets = local_value(gathered(*decision.inputs[ids], decision), at, globals[ids]);
  if (call.op == OpId::kCrossEntropy)
    return run_op(OpId::kCrossEntropy, {logits, targets}, call.attributes);
  return losses_of_logits(logits, targets, x.size() > 4 ? x[4] : Tensor(), call.attributes.ints[0]);
}

}  // namespace meshloom::test
