// SPDX-License-Identifier: Apache-2.0
// How a test makes Partial inputs: uneven shares of a global value that add up to it again.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/dtensor_spec.h"

namespace meshloom::test {

/// What the rank at `coordinates` holds of `value`, which stands at the row-major global `index`;
/// mesh dims that are not Partial leave it as it is.
inline double partial_share(double value, std::int64_t index, const planner::DTensorSpec& spec,
                            const std::vector<int>& coordinates) {
  using planner::PartialOp;
  for (int d = 0; d < spec.mesh().ndim(); ++d) {
    if (!spec.placement(d).is_partial()) continue;
    const double n = spec.mesh().dim_size(d);
    const int i = coordinates[static_cast<std::size_t>(d)];
    const bool holds = index % spec.mesh().dim_size(d) == i;
    switch (spec.placement(d).partial) {
      case PartialOp::kSum: value *= 2.0 * (i + 1) / (n * (n + 1)); break;
      case PartialOp::kAvg: value *= 2.0 * (i + 1) / (n + 1); break;
      case PartialOp::kMax: value -= holds ? 0.0 : 1.0; break;
      case PartialOp::kMin: value += holds ? 0.0 : 1.0; break;
    }
  }
  return value;
}

}  // namespace meshloom::test
