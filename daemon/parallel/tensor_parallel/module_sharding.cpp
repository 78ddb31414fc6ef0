// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/module_sharding.h"

#include <algorithm>

#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::DimOrder;
using planner::DimOrderPtr;
using planner::SpecPtr;

/// Null where the ceil rule shards the same.
DimOrderPtr order_of(std::int64_t count, int parts, int groups, std::int64_t unit) {
  const DimOrderPtr order = DimOrder::blocked(count, parts, groups, unit);
  for (int p = 0; p < parts; ++p) {
    const planner::ShardRange plain = planner::shard_range(count, parts, p);
    const planner::IndexRanges part = order->part(p);
    const bool alike =
        plain.size() == 0 ? order->part_size(p) == 0 : part.size() == 1 && part.front() == plain;
    if (!alike) return order;
  }
  return nullptr;
}

/// This rank's part of a whole tensor, in memory of its own.
Tensor part_of(const Tensor& whole, const planner::LocalPart& part) {
  Tensor window = whole.detach();
  for (int dim = 0; dim < part.shape().size(); ++dim) {
    std::vector<Tensor> pieces;
    for (const planner::ShardRange& range : part.ranges(dim))
      pieces.push_back(ops::slice(window, dim, range.begin, range.end));
    if (pieces.empty()) pieces.push_back(ops::slice(window, dim, 0, 0));
    window = pieces.size() == 1 ? pieces.front() : ops::cat(pieces, dim);
  }
  const Tensor copy = empty(whole.context(), part.shape(), whole.dtype());
  copy_into(copy, window);
  return copy;
}

SpecPtr parameter_spec(const Shape& shape, int dim, const ShardedFeatures& features,
                       const StyleDims& dims) {
  planner::Placements along(static_cast<std::size_t>(dims.count()));
  std::vector<DimOrderPtr> orders;
  if (dim >= 0 && !features.whole) {
    std::fill(along.begin(), along.end(), planner::Placement::shard(dim));
    orders = features.orders;
  }
  return std::make_shared<const planner::DTensorSpec>(dims.mesh(), dims.on_mesh(along), shape,
                                                      planner::ShardOrder{}, std::move(orders));
}

/// The layout with Partial on every acting dim that holds the tensor whole.
SpecPtr summands_of(const SpecPtr& spec, const StyleMesh& mesh) {
  planner::Placements placements = spec->placements();
  for (const int d : mesh.dims.acting()) {
    planner::Placement& placement = placements[static_cast<std::size_t>(d)];
    if (placement.is_replicate())
      placement = planner::Placement::partial_of(planner::PartialOp::kSum);
  }
  return mesh.engine.intern(std::make_shared<const planner::DTensorSpec>(
      spec->mesh_ptr(), placements, spec->shape(), spec->shard_order()));
}

}  // namespace

ShardedFeatures shard_features(std::int64_t count, const nn::FeatureUnits& units,
                               const StyleDims& dims) {
  ShardedFeatures result{.count = count};
  if (dims.count() == 0) return result;
  const int outermost = dims.acting().front();
  const int parts = dims.mesh()->dim_size(outermost);
  const std::int64_t per_group = count / (units.groups * units.unit);
  if (units.whole_where_few && per_group < dims.parts()) {
    result.whole = true;
    return result;
  }
  const bool bundled = per_group % units.bundle == 0 && per_group / units.bundle >= parts;
  const std::int64_t unit = units.unit * (bundled ? units.bundle : 1);
  if (units.groups == 1 && unit == 1) return result;
  const DimOrderPtr order = order_of(count, parts, units.groups, unit);
  if (!order) return result;
  result.orders.assign(static_cast<std::size_t>(dims.mesh()->ndim()), nullptr);
  result.orders[static_cast<std::size_t>(outermost)] = order;
  return result;
}

ModuleSharding shard_module(nn::Module& module, const nn::FeatureSharding& sharding,
                            const StyleDims& dims, const std::string& where) {
  ModuleSharding result;
  for (const nn::NamedParameter& own : module.own_parameters()) {
    const auto found = std::find_if(sharding.parameters.begin(), sharding.parameters.end(),
                                    [&](const auto& p) { return p.name == own.name; });
    check_internal(found != sharding.parameters.end(), "{}: no sharding of {} is given", where,
                   own.name);
    const Tensor& value = own.parameter->value;
    check(!value.has_layout(), "{}: {} is spread over the mesh already", where, own.name);
    ShardedFeatures features;
    if (found->dim >= 0) {
      features = shard_features(value.size(found->dim), found->units, dims);
      if (result.features.count == 0) result.features = features;
    }
    result.parameters.push_back({own.parameter,
                                 parameter_spec(value.shape(), found->dim, features, dims),
                                 found->dim < 0 && !sharding.shards_output});
  }
  return result;
}

void distribute_parameter(const ParameterLayout& layout, const StyleMesh& mesh,
                          std::optional<int> src_data_rank) {
  Tensor& value = layout.parameter->value;
  const SpecPtr spec = mesh.engine.intern(layout.spec);
  const NoGradGuard no_grad(value.context());
  const bool wanted = value.requires_grad();
  const planner::LocalPart part = spec->local_part(mesh.mesh().coordinates());
  Tensor local;
  if (!has_memory(value)) {
    local = deferred(value.context(), part.shape(), value.dtype());
  } else {
    Tensor whole = value.detach();
    if (src_data_rank && mesh.dims.parts() > 1) {
      whole = ops::contiguous(whole);
      mesh.mesh().group(mesh.dims.acting()).broadcast(whole.view(), *src_data_rank)->wait_host();
    }
    local = part_of(whole, part);
  }
  if (wanted) local.set_requires_grad(true);
  value = with_interned_layout(local, spec, mesh.engine);
  value.layout()->grad_spec =
      layout.summands ? summands_of(spec, mesh) : mesh.engine.gradient_of(spec);
}

}  // namespace meshloom::parallel
