// SPDX-License-Identifier: Apache-2.0
// First values of a part of a parameter: those that the whole would have there.
#pragma once

#include <string>
#include <vector>

#include "daemon/nn/module.h"
#include "planner/dim_order.h"

namespace meshloom::nn {

/// Writes the values that a parameter of shape `whole` starts from (initialize_tensor) at the
/// elements that `ranges` name, one list per dim, row-major in their order, into `dst` (contiguous,
/// of the ranges' shape). Nothing else of the parameter is computed.
void initialize_part(const Tensor& dst, const std::string& name, const Init& init,
                     std::uint64_t seed, const Shape& whole,
                     const std::vector<planner::IndexRanges>& ranges);

}  // namespace meshloom::nn
