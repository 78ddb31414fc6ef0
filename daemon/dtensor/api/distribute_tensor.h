// SPDX-License-Identifier: Apache-2.0
// Sharding one rank's tensor over a mesh.
#pragma once

#include <optional>

#include "daemon/dtensor/distributed_engine.h"

namespace meshloom::dtensor {

/// Returns a leaf with this layout and memory of its own, which requires a gradient if `tensor`
/// does. With a source the values are those of the rank at coordinate `src_data_rank` of every mesh
/// dim: a scatter per S, a broadcast per R dim; every rank gives a tensor of the same shape and
/// dtype, which they agree on first (not counted as communication): what does not fit is the same
/// error on all. Without one every rank shards its own tensor, which is the same everywhere, and
/// nothing is sent. A rank outside the mesh holds an empty one. A tensor that has this layout
/// already comes back as it is. Throws InvalidArgument for a tensor with a grad_fn, Partial
/// placements, another number of them than mesh dims, a source outside the mesh, and a tensor with
/// another layout.
Tensor distribute_tensor(const Tensor& tensor, DistributedEngine& engine,
                         const planner::Placements& placements,
                         std::optional<int> src_data_rank = 0);
/// Distributes a tensor in any layout without Partial, as that with placements does.
Tensor distribute_tensor(const Tensor& tensor, DistributedEngine& engine,
                         const planner::SpecPtr& layout, std::optional<int> src_data_rank = 0);

}  // namespace meshloom::dtensor
