// SPDX-License-Identifier: Apache-2.0
// How the gradient of a tensor is held.
#pragma once

#include "planner/dtensor_spec.h"

namespace meshloom::dtensor {

/// The layout with Partial replaced by Replicate; the same object if none is Partial.
inline planner::SpecPtr without_partial(const planner::SpecPtr& spec) {
  if (!spec->has_partial()) return spec;
  planner::Placements placements = spec->placements();
  for (planner::Placement& placement : placements)
    if (placement.is_partial()) placement = planner::Placement::replicate();
  return planner::with_placements(*spec, std::move(placements));
}

}  // namespace meshloom::dtensor
