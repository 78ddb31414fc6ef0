// SPDX-License-Identifier: Apache-2.0
// What a rank that the mesh leaves out does for an op.
#pragma once

#include <span>
#include <vector>

#include "daemon/tensor/tensor.h"
#include "planner/sharding/op_call.h"

namespace meshloom::dtensor {

/// Returns what a rank outside the mesh holds of a tensor of this global shape: no elements, or a
/// zero if the shape has no dims.
Tensor outside_local(ExecutionContext& context, const Shape& global, DType dtype);

/// Makes, in place of running the op, results of the dtypes that the members get. The graph is like
/// theirs, so that what backward does between meshes is done by all: a node whose gradients are
/// zeros. `inputs` are local tensors, undefined if left out.
std::vector<Tensor> run_outside(planner::OpId op, const planner::OpAttributes& attributes,
                                std::span<const Tensor> inputs,
                                const std::vector<planner::SpecPtr>& outputs);

}  // namespace meshloom::dtensor
