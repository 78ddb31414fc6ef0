// SPDX-License-Identifier: Apache-2.0
// Comparing tensors of many ranks.
#pragma once

#include "daemon/dtensor/distributed_engine.h"

namespace meshloom::dtensor {

/// Tells whether a and b have one shape and dtype and equal elements (NaN equals nothing). Every
/// rank of the mesh calls it, and all get the same answer. If their layouts differ, or are Partial,
/// they are redistributed first; then one all_reduce of a number. True on a rank outside the mesh.
/// Throws InvalidArgument for tensors that are not on one mesh. No gradient is recorded.
bool equal(const Tensor& a, const Tensor& b);

}  // namespace meshloom::dtensor
