// SPDX-License-Identifier: Apache-2.0
// From a tensor with a layout to plain ones.
#pragma once

#include <optional>

#include "daemon/dtensor/distributed_engine.h"

namespace meshloom::dtensor {

/// This rank's local tensor; the stored one itself if no gradient is recorded.
/// `grad_placements` says how the gradient that will come back is held ([P] if each rank's is a
/// summand); left out: in the tensor's layout, Partial replaced by Replicate. Throws
/// InvalidArgument for a plain tensor or another number of placements.
Tensor to_local(const Tensor& x,
                const std::optional<planner::Placements>& grad_placements = std::nullopt);

/// Returns the global tensor on every rank of the mesh (which all call it); gradients as in
/// to_local. A rank outside the mesh gets an empty one.
Tensor full_tensor(const Tensor& x,
                   const std::optional<planner::Placements>& grad_placements = std::nullopt);

}  // namespace meshloom::dtensor
