// SPDX-License-Identifier: Apache-2.0
// RedistributeSpecs: the four layouts of a redistribution; how gradients are held.
#pragma once

#include "planner/dtensor_spec.h"

namespace meshloom::dtensor {

struct RedistributeSpecs {
  planner::SpecPtr from, to;  ///< of the values
  /// The first says how the gradient of the result is held, the second how that of the input is to
  /// be: backward goes from the first to the second. Null: no gradient is recorded.
  planner::SpecPtr grad_of_to = nullptr, grad_of_from = nullptr;
};

/// Returns the layout with Partial replaced by Replicate; the same object if none is Partial.
inline planner::SpecPtr without_partial(const planner::SpecPtr& spec) {
  if (!spec->has_partial()) return spec;
  planner::Placements placements = spec->placements();
  for (planner::Placement& placement : placements)
    if (placement.is_partial()) placement = planner::Placement::replicate();
  return planner::with_placements(*spec, std::move(placements));
}

}  // namespace meshloom::dtensor
