// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/module_sharding.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "planner/shard.h"

namespace meshloom::planner {
namespace {

/// Null if the ceil rule shards the same.
DimOrderPtr order_of(std::int64_t count, int parts, int groups, std::int64_t unit) {
  const DimOrderPtr order = DimOrder::blocked(count, parts, groups, unit);
  for (int p = 0; p < parts; ++p) {
    const ShardRange plain = shard_range(count, parts, p);
    const IndexRanges part = order->part(p);
    const bool alike =
        plain.size() == 0 ? order->part_size(p) == 0 : part.size() == 1 && part.front() == plain;
    if (!alike) return order;
  }
  return nullptr;
}

}  // namespace

ShardedFeatures shard_features(std::int64_t count, const FeatureUnits& units,
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
  result.groups = units.groups;
  result.unit = units.unit * (bundled ? units.bundle : 1);
  if (result.groups == 1 && result.unit == 1) return result;
  const DimOrderPtr order = order_of(count, parts, result.groups, result.unit);
  if (!order) return result;
  result.orders.assign(static_cast<std::size_t>(dims.mesh()->ndim()), nullptr);
  result.orders[static_cast<std::size_t>(outermost)] = order;
  return result;
}

ModuleSharding shard_module(const ModuleShape& module, const FeatureSharding& sharding,
                            const StyleDims& dims, const std::string& where) {
  ModuleSharding result;
  for (const ParameterShape& own : module.parameters) {
    const auto found = std::find_if(sharding.parameters.begin(), sharding.parameters.end(),
                                    [&](const auto& p) { return p.name == own.name; });
    check_internal(found != sharding.parameters.end(), "{}: no sharding of {} is given", where,
                   own.name);
    ShardedFeatures features;
    if (found->dim >= 0) {
      features = shard_features(own.shape[found->dim], found->units, dims);
      if (result.features.count == 0) result.features = features;
    }
    Placements along(static_cast<std::size_t>(dims.count()));
    std::vector<DimOrderPtr> orders;
    if (found->dim >= 0 && !features.whole) {
      std::fill(along.begin(), along.end(), Placement::shard(found->dim));
      orders = features.orders;
    }
    result.parameters.push_back(
        {own.name,
         std::make_shared<const DTensorSpec>(dims.mesh(), dims.on_mesh(along), own.shape,
                                             ShardOrder{}, std::move(orders)),
         found->dim < 0 && !sharding.shards_output, features.groups, features.unit});
  }
  return result;
}

}  // namespace meshloom::planner
