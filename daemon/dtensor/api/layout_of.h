// SPDX-License-Identifier: Apache-2.0
// What the calls on tensors with a layout share.
#pragma once

#include "daemon/dtensor/distributed_engine.h"

namespace meshloom::dtensor {

/// Returns the engine of a tensor with a layout. Throws InvalidArgument naming `call` for a plain
/// tensor.
DistributedEngine& engine_of(const Tensor& x, const char* call);

/// Returns the engine's layout of these placements (dims may count from the end). Throws
/// InvalidArgument naming `call` if their number is not the mesh's.
planner::SpecPtr layout_for(DistributedEngine& engine, const planner::Placements& placements,
                            const Shape& shape, const char* call, planner::ShardOrder order = {});

/// Returns the layout in which the gradient of x is held. If a gradient is recorded now, a leaf
/// counts it as a use that gives the gradient as usual (hold_gradient).
planner::SpecPtr recorded_grad_spec(const Tensor& x);

/// Makes a tensor as with_layout does, whose gradient is held in `grad_spec` (interned), or as
/// usual if it is null.
Tensor wrap(Tensor local, const planner::SpecPtr& spec, DistributedEngine& engine,
            const planner::SpecPtr& grad_spec = nullptr);

}  // namespace meshloom::dtensor
