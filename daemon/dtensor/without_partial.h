// SPDX-License-Identifier: Apache-2.0
// How the gradient of a tensor is held.
#pragma once

#include "planner/dtensor_spec.h"

namespace meshloom::dtensor {

/// The layout with Partial replaced by Replicate; the same object if none is Partial.
inline planner::SpecPtr without_partial(const planner::SpecPtr& spec) {
  if (!spec->has_partial()) return spec;
  planner::Placements placements = spec->placements();
  std::vector<planner::DimOrderPtr> orders;
  for (std::size_t d = 0; d < placements.size(); ++d) {
    if (placements[d].is_partial()) placements[d] = planner::Placement::replicate();
    if (spec->has_dim_orders()) orders.push_back(spec->dim_order(static_cast<int>(d)));
  }
  planner::ShardOrder order = spec->default_order() ? planner::ShardOrder() : spec->shard_order();
  return std::make_shared<const planner::DTensorSpec>(
      spec->mesh_ptr(), std::move(placements), spec->shape(), std::move(order), std::move(orders));
}

}  // namespace meshloom::dtensor
