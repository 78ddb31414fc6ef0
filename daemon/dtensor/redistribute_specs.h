// SPDX-License-Identifier: Apache-2.0
// RedistributeSpecs: the four layouts of a redistribution.
#pragma once

#include "planner/dtensor_spec.h"

namespace meshloom::dtensor {

struct RedistributeSpecs {
  planner::SpecPtr from, to;  ///< of the values
  /// How the gradient of the result is held, and how that of the input is to be: backward goes from
  /// the first to the second. Null: no gradient is recorded.
  planner::SpecPtr grad_of_to = nullptr, grad_of_from = nullptr;
};

}  // namespace meshloom::dtensor
