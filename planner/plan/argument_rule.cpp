// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/argument_rule.h"

#include <algorithm>

namespace meshloom::planner {
namespace {

bool features_last(const Placement& placement, int ndim) {
  return placement.is_shard() && placement.dim == ndim - 1;
}

/// The orders in which a module's features are sharded, by mesh dim; empty if it has none.
std::vector<DimOrderPtr> feature_orders(const Placements& placements, const Shape& shape,
                                        const ArgumentRule& rule) {
  std::vector<DimOrderPtr> orders;
  if (rule.feature_orders.empty() || shape.size() == 0 || shape.back() != rule.features)
    return orders;
  orders = rule.feature_orders;
  for (std::size_t d = 0; d < orders.size(); ++d)
    if (!features_last(placements[d], shape.size())) orders[d] = nullptr;
  if (std::all_of(orders.begin(), orders.end(), [](const auto& o) { return o == nullptr; }))
    orders.clear();
  return orders;
}

}  // namespace

SpecPtr given_spec(const ArgumentRule& rule, const Shape& local, const StyleDims& dims) {
  const Placements placements = dims.on_mesh(normalize_placements(*rule.given, local.size()));
  Shape shape = local;
  for (const int d : dims.acting()) {
    const Placement& placement = placements[static_cast<std::size_t>(d)];
    if (placement.is_shard()) shape[placement.dim] *= dims.mesh()->dim_size(d);
  }
  // A module knows how many features there are in all; of other dims a plain part tells nothing,
  // so that all ranks are taken to hold as much.
  const bool sharded = std::any_of(placements.begin(), placements.end(),
                                   [&](const auto& p) { return features_last(p, local.size()); });
  if (sharded && rule.features > 0) shape[local.size() - 1] = rule.features;
  return std::make_shared<const DTensorSpec>(dims.mesh(), placements, shape, ShardOrder{},
                                             feature_orders(placements, shape, rule));
}

SpecPtr desired_spec(const ArgumentRule& rule, const SpecPtr& from, const StyleDims& dims) {
  const Placements desired =
      dims.on_mesh(normalize_placements(*rule.desired, from->shape().size()), from->placements());
  // The same sharding in another order of elements is what the module works on as it is.
  if (desired == from->placements()) return from;
  return with_placements(*from, desired, feature_orders(desired, from->shape(), rule));
}

SpecPtr gathered_gradient(const SpecPtr& from, const SpecPtr& to) {
  Placements placements = to->placements();
  bool any = false;
  for (std::size_t d = 0; d < placements.size(); ++d) {
    const bool gathered = from->placements()[d].is_shard() && placements[d].is_replicate();
    if (gathered) placements[d] = Placement::partial_of(PartialOp::kSum);
    any = any || gathered;
  }
  if (!any) return nullptr;
  // What is neither gathered nor whole keeps its place; Partial of `to` itself is whole again.
  for (std::size_t d = 0; d < placements.size(); ++d)
    if (to->placements()[d].is_partial()) placements[d] = Placement::replicate();
  return with_placements(*to, std::move(placements));
}

}  // namespace meshloom::planner
