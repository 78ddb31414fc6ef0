// SPDX-License-Identifier: Apache-2.0
// The layout of a parameter over the whole mesh of a run, put together from tensor parallelism and
// fully_shard.
#pragma once

#include <optional>

#include "planner/dtensor_spec.h"

namespace meshloom::train {

/// `tensor_spec`: over a mesh of the one dim tp, or null if every rank has the whole parameter.
/// `shard_dim`: the dim of what tensor parallelism leaves that fully_shard shards over fsdp. The
/// result is over `mesh`; a dim that both shard is sharded by tp first.
planner::SpecPtr parameter_spec(const planner::MeshPtr& mesh, const Shape& shape,
                                const planner::SpecPtr& tensor_spec, std::optional<int> shard_dim);

/// Whether the rank at `coordinates` is the one that speaks for all that hold the same part: its
/// coordinate is 0 on every mesh dim that holds copies. `among`: of these mesh dims only.
bool speaks_for_part(const planner::DTensorSpec& spec, const std::vector<int>& coordinates,
                     const std::vector<int>& among);

}  // namespace meshloom::train
