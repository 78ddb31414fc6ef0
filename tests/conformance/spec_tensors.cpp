// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/spec_tensors.h"

#include <algorithm>

#include "daemon/tensor/host_pieces.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/partial_share.h"

namespace meshloom::conformance {
namespace {

using planner::PartialOp;

void check_partial_dtype(DType dtype, const planner::DTensorSpec& spec) {
  for (const planner::Placement& p : spec.placements())
    check(!p.is_partial() || dtype_is_floating(dtype) || p.partial == PartialOp::kMax ||
              p.partial == PartialOp::kMin,
          "in.x is {}: {} inputs are made of floating dtypes only", dtype_name(dtype),
          planner::to_string(p));
}

Tensor from_doubles(ExecutionContext& context, const Shape& shape,
                    const std::vector<double>& values, DType dtype) {
  const Tensor wide = from_values(context, shape, values, DType::kFloat64);
  if (dtype == DType::kFloat64) return wide;
  const Tensor result = empty(context, shape, dtype);
  copy_into(result, wide);
  return result;
}

/// Every rank's local tensor, as this one's dtype.
std::vector<Tensor> all_locals(const Tensor& local, const planner::DTensorSpec& spec,
                               const RankContext& rank) {
  std::vector<Tensor> locals;
  std::vector<TensorView> views;
  for (int r = 0; r < rank.world.size(); ++r) {
    locals.push_back(
        empty(rank.context, spec.local_shape(spec.mesh().coordinates(r)), local.dtype()));
    views.push_back(locals.back().view());
  }
  rank.world.all_gather(views, ops::contiguous(local.detach()).view())->wait_host();
  return locals;
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  std::vector<std::byte> bytes;
  HostPieces(x.context()).read(x.view(), x.dtype(), [&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  });
  return bytes;
}

/// Ranks whose parts of Partial dims are the same must hold the same bits.
void check_replicas(const std::vector<Tensor>& locals, const planner::DTensorSpec& spec) {
  std::map<std::vector<int>, int> first;
  for (int r = 0; r < spec.mesh().size(); ++r) {
    std::vector<int> key = spec.mesh().coordinates(r);
    for (int d = 0; d < spec.mesh().ndim(); ++d)
      if (spec.placement(d).is_replicate()) key[static_cast<std::size_t>(d)] = 0;
    const auto [found, is_new] = first.emplace(key, r);
    if (is_new) continue;
    check(bytes_of(locals[static_cast<std::size_t>(found->second)]) ==
              bytes_of(locals[static_cast<std::size_t>(r)]),
          "ranks {} and {} hold different replicas in layout {}", found->second, r,
          planner::to_string(spec));
  }
}

/// How a rank's value counts in the global one: weight of the sum, or nothing to add.
struct Fold {
  double weight = 1.0;
  bool extreme = false, largest = false;
};

Fold fold_of(const planner::DTensorSpec& spec) {
  Fold fold;
  for (int d = 0; d < spec.mesh().ndim(); ++d) {
    if (!spec.placement(d).is_partial()) continue;
    const PartialOp op = spec.placement(d).partial;
    if (op == PartialOp::kAvg) fold.weight /= spec.mesh().dim_size(d);
    if (op == PartialOp::kMax || op == PartialOp::kMin) fold.extreme = true;
    fold.largest = fold.largest || op == PartialOp::kMax;
  }
  return fold;
}

}  // namespace

Tensor scatter_global(const Tensor& global, const planner::DTensorSpec& spec,
                      const RankContext& rank) {
  check_partial_dtype(global.dtype(), spec);
  const NoGradGuard no_grad(rank.context);
  const std::vector<int> at = spec.mesh().coordinates(rank.rank());
  const planner::LocalPart part = spec.local_part(at);
  const std::vector<double> values = global.to_vector();
  std::vector<double> mine;
  for (const std::int64_t index : global_indices(part, spec.shape()))
    mine.push_back(test::partial_share(values[static_cast<std::size_t>(index)], index, spec, at));
  return from_doubles(rank.context, part.shape(), mine, global.dtype());
}

Tensor gather_global(const Tensor& local, const planner::DTensorSpec& spec,
                     const RankContext& rank) {
  const NoGradGuard no_grad(rank.context);
  const std::vector<Tensor> locals = all_locals(local, spec, rank);
  check_replicas(locals, spec);
  const Fold fold = fold_of(spec);
  std::vector<double> values(static_cast<std::size_t>(numel(spec.shape())), 0.0);
  std::vector<bool> seen(values.size(), false);
  for (int r = 0; r < spec.mesh().size(); ++r) {
    const std::vector<int> at = spec.mesh().coordinates(r);
    bool first_replica = true;
    for (int d = 0; d < spec.mesh().ndim(); ++d)
      if (spec.placement(d).is_replicate() && at[static_cast<std::size_t>(d)] != 0)
        first_replica = false;
    if (!first_replica) continue;
    const std::vector<double> mine = locals[static_cast<std::size_t>(r)].to_vector();
    std::size_t i = 0;
    for (const std::int64_t index : global_indices(spec.local_part(at), spec.shape())) {
      const auto g = static_cast<std::size_t>(index);
      const double value = mine[i++] * fold.weight;
      if (!seen[g])
        values[g] = value;
      else if (fold.extreme)
        values[g] = fold.largest ? std::max(values[g], value) : std::min(values[g], value);
      else
        values[g] += value;
      seen[g] = true;
    }
  }
  check(std::find(seen.begin(), seen.end(), false) == seen.end(),
        "no rank holds some of the elements in layout {}", planner::to_string(spec));
  return from_doubles(rank.context, spec.shape(), values, local.dtype());
}

void store_counters(const std::map<std::string, comm::CommCounter>& counters,
                    const std::string& phase, CaseResults& results) {
  CommCounts& counts = results.comm[phase];
  std::int64_t& bytes = results.bytes_sent[phase];
  for (const auto& [name, counter] : counters) {
    if (counter.calls > 0) counts[name] += static_cast<std::int64_t>(counter.calls);
    bytes += static_cast<std::int64_t>(counter.bytes_sent);
  }
}

}  // namespace meshloom::conformance
