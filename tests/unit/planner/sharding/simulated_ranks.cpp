// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/sharding/simulated_ranks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

namespace meshloom::test {
namespace {

using planner::DTensorSpec;
using planner::PartialOp;
using planner::Placement;

std::vector<std::int64_t> global_indices(const DTensorSpec& spec, const std::vector<int>& at) {
  return planner::global_indices(spec.local_part(at), spec.shape());
}

double partial_share(PartialOp op, double x, std::int64_t index, int rank, int ranks) {
  const double share = x * 2.0 * (rank + 1) / (ranks * (ranks + 1.0));
  switch (op) {
    case PartialOp::kSum: return share;
    case PartialOp::kAvg: return share * ranks;
    case PartialOp::kMax: return index % ranks == rank ? x : x - 1.0;
    case PartialOp::kMin: return index % ranks == rank ? x : x + 1.0;
  }
  return x;
}

/// Folds a value of a rank into what is there of its group.
double fold(PartialOp op, double so_far, double value, int ranks) {
  switch (op) {
    case PartialOp::kSum: return so_far + value;
    case PartialOp::kAvg: return so_far + value / ranks;
    case PartialOp::kMax: return std::max(so_far, value);
    case PartialOp::kMin: return std::min(so_far, value);
  }
  return value;
}

/// Values by global index (NaN where a rank has none), one entry per rank.
using Pictures = std::vector<std::vector<double>>;

/// Reduces over one mesh dim: every rank's picture becomes that of its group.
testing::AssertionResult reduce_dim(const DTensorSpec& spec, int mesh_dim, double tolerance,
                                    Pictures& pictures) {
  const Placement& placement = spec.placement(mesh_dim);
  const int ranks = spec.mesh().dim_size(mesh_dim);
  for (const std::vector<int>& group : spec.mesh().groups(mesh_dim)) {
    std::vector<double> whole = pictures[static_cast<std::size_t>(group[0])];
    for (std::size_t g = 0; g < whole.size(); ++g) {
      if (placement.is_partial() && placement.partial == PartialOp::kAvg) whole[g] /= ranks;
      for (std::size_t r = 1; r < group.size(); ++r) {
        const double value = pictures[static_cast<std::size_t>(group[r])][g];
        if (placement.is_shard()) {
          if (std::isnan(whole[g])) whole[g] = value;
        } else if (placement.is_partial()) {
          whole[g] = fold(placement.partial, whole[g], value, ranks);
        } else if (std::abs(whole[g] - value) > tolerance * (1.0 + std::abs(value)) ||
                   std::isnan(whole[g]) != std::isnan(value)) {
          return testing::AssertionFailure()
                 << "ranks " << group[0] << " and " << group[r] << " hold " << whole[g] << " and "
                 << value << " of element " << g << " under " << planner::to_string(spec);
        }
      }
    }
    for (const int rank : group) pictures[static_cast<std::size_t>(rank)] = whole;
  }
  return testing::AssertionSuccess();
}

}  // namespace

Tensor local_value(const DTensorSpec& spec, const std::vector<int>& coordinates,
                   const Tensor& global) {
  const std::vector<double> values = global.to_vector();
  std::vector<double> held;
  for (const std::int64_t index : global_indices(spec, coordinates)) {
    double x = values[static_cast<std::size_t>(index)];
    for (int m = 0; m < spec.mesh().ndim(); ++m)
      if (spec.placement(m).is_partial())
        x = partial_share(spec.placement(m).partial, x, index,
                          coordinates[static_cast<std::size_t>(m)], spec.mesh().dim_size(m));
    held.push_back(x);
  }
  const Shape shape = spec.local_shape(coordinates);
  if (dtype_is_floating(global.dtype()))
    return from_values(global.context(), shape, held, global.dtype());
  const std::vector<std::int64_t> whole(held.begin(), held.end());
  const Tensor ids = from_values(global.context(), shape, whole);
  if (global.dtype() == DType::kInt64) return ids;
  Tensor converted = empty(global.context(), shape, global.dtype());
  copy_into(converted, ids);
  return converted;
}

testing::AssertionResult assemble(const DTensorSpec& spec, const std::vector<Tensor>& locals,
                                  double tolerance, std::vector<double>& global) {
  const auto count = static_cast<std::size_t>(numel(spec.shape()));
  Pictures pictures;
  for (int rank = 0; rank < spec.mesh().size(); ++rank) {
    const std::vector<int> at = spec.mesh().coordinates(rank);
    const Tensor& local = locals[static_cast<std::size_t>(rank)];
    if (!(local.shape() == spec.local_shape(at)))
      return testing::AssertionFailure()
             << "rank " << rank << " has " << to_string(local.shape()) << ", expected "
             << to_string(spec.local_shape(at)) << " of " << planner::to_string(spec);
    std::vector<double>& picture =
        pictures.emplace_back(count, std::numeric_limits<double>::quiet_NaN());
    const std::vector<double> values = local.to_vector();
    const std::vector<std::int64_t> indices = global_indices(spec, at);
    for (std::size_t i = 0; i < values.size(); ++i)
      picture[static_cast<std::size_t>(indices[i])] = values[i];
  }
  for (int m = 0; m < spec.mesh().ndim(); ++m)
    if (auto result = reduce_dim(spec, m, tolerance, pictures); !result) return result;
  global = pictures[0];
  return testing::AssertionSuccess();
}

planner::SpecPtr without_partial(const planner::SpecPtr& spec) {
  planner::Placements placements = spec->placements();
  std::vector<planner::DimOrderPtr> orders;
  for (std::size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].is_partial()) placements[m] = Placement::replicate();
    orders.push_back(spec->dim_order(static_cast<int>(m)));
  }
  return std::make_shared<DTensorSpec>(spec->mesh_ptr(), placements, spec->shape(),
                                       spec->shard_order(), orders);
}

}  // namespace meshloom::test
