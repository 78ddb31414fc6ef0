// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/sequence_sharding.h"

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/redistribute_tensor.h"
#include "kernels/base/error.h"
#include "planner/dtensor_spec.h"

namespace meshloom::parallel {
namespace {

using planner::Placement;

int dim_of(const Tensor& x, int sequence_dim) {
  const int dim = sequence_dim < 0 ? sequence_dim + x.ndim() : sequence_dim;
  check(dim >= 0 && dim < x.ndim(), "context_parallel: sequence dim {} of a tensor of shape {}",
        sequence_dim, x.shape());
  return dim;
}

}  // namespace

int SequenceSharding::mesh_dim_index() const {
  const planner::MeshLayout& mesh = *engine.context().mesh.layout();
  const auto dim = mesh.find_dim(mesh_dim);
  check(dim.has_value(), "context_parallel: the mesh {} has no dim '{}'", mesh, mesh_dim);
  return *dim;
}

Tensor shard_sequence(const Tensor& x, int sequence_dim, const SequenceSharding& sharding,
                      int row_dim) {
  check(x.defined(), "context_parallel: a tensor that is not there");
  const int dim = dim_of(x, sequence_dim);
  const int mesh_dim = sharding.mesh_dim_index();
  check(!x.has_layout() || x.layout()->engine == &sharding.engine,
        "context_parallel: a tensor of another mesh");
  const planner::MeshPtr& mesh = sharding.engine.context().mesh.layout();
  Tensor whole = x;
  if (!x.has_layout()) {
    const planner::Placements replicated(static_cast<std::size_t>(mesh->ndim()));
    whole = dtensor::from_local(
        x, sharding.engine,
        std::make_shared<const planner::DTensorSpec>(mesh, replicated, x.shape()));
  }
  const planner::DTensorSpec& before = *whole.layout()->spec;
  check(before.placement(mesh_dim).is_replicate() && before.sharding_dims(dim).empty(),
        "context_parallel: a tensor with layout {} is not whole along dim {} and mesh dim {}",
        before, dim, sharding.mesh_dim);
  const int ranks = mesh->size_of(sharding.mesh_dim);
  check(!sharding.rows.empty(), "context_parallel: no rows");
  const auto rows = static_cast<std::int64_t>(sharding.rows.size());
  check(rows == 1 || (row_dim >= 0 && row_dim < whole.ndim() && row_dim != dim &&
                      whole.size(row_dim) == rows),
        "context_parallel: {} rows are described, but dim {} of a tensor of shape {} is that of "
        "the rows",
        rows, row_dim, whole.shape());
  return shard_in_order(whole, dim, mesh_dim,
                        planner::balanced_order(sharding.plan.load_balancer, whole.size(dim), ranks,
                                                row_dim, sharding.rows));
}

Tensor shard_in_order(const Tensor& x, int dim, int mesh_dim, const planner::DimOrderPtr& order) {
  const planner::DTensorSpec& before = *x.layout()->spec;
  planner::Placements placements = before.placements();
  std::vector<planner::DimOrderPtr> orders(placements.size());
  placements[static_cast<std::size_t>(mesh_dim)] = Placement::shard(dim);
  orders[static_cast<std::size_t>(mesh_dim)] = order;
  return dtensor::redistribute(
      x, planner::with_placements(before, std::move(placements), std::move(orders)));
}

Tensor unshard_sequence(const Tensor& x, int sequence_dim) {
  check(x.defined() && x.has_layout(), "context_parallel: a tensor without a layout is no shard");
  const planner::DTensorSpec& spec = *x.layout()->spec;
  const int dim = dim_of(x, sequence_dim);
  const std::vector<int> sharding = spec.sharding_dims(dim);
  check(!sharding.empty(), "context_parallel: nothing shards dim {} of a tensor with layout {}",
        dim, spec);
  planner::Placements placements = spec.placements();
  for (const int mesh_dim : sharding)
    placements[static_cast<std::size_t>(mesh_dim)] = Placement::replicate();
  return dtensor::redistribute(x, planner::with_placements(spec, std::move(placements)));
}

}  // namespace meshloom::parallel
