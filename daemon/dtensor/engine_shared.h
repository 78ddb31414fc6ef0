// SPDX-License-Identifier: Apache-2.0
// Redistributed copies that the uses of one tensor share.
#pragma once

#include "daemon/tensor/layout.h"

namespace meshloom::dtensor {

/// The copy of the tensor in `spec` whose gradient is held as `grad_of`, if an op that was recorded
/// with it still keeps it and its graph was not run backward; else undefined.
Tensor find_copy(TensorLayout& layout, const planner::SpecPtr& spec,
                 const planner::SpecPtr& grad_of);

/// Notes `copy`, the result of the node that made it from the tensor, for later uses. Where it is
/// an identity it takes over the tensor's recipe (TensorImpl::recompute).
void keep_copy(TensorLayout& layout, const Tensor& copy, const planner::SpecPtr& spec,
               const planner::SpecPtr& grad_of);

}  // namespace meshloom::dtensor
