// SPDX-License-Identifier: Apache-2.0
// ModelShards: which dim fully_shard shards of every parameter of a model.
#pragma once

#include <vector>

#include "planner/estimate/styled_model.h"
#include "planner/parameter_shards.h"
#include "planner/plan/mesh_sizes.h"

namespace meshloom::planner {

/// ModelShards has one choice per parameter, in the order of parameters_of; those of `block` hold
/// for every layer. Without fully_shard, or on one rank of fsdp, no dim of any.
struct ModelShards {
  std::vector<ShardChoice> before, block, after;
};

/// Throws InvalidArgument naming a parameter whose hand-made choice is no dim of it, or a pattern
/// that matches none, and Unimplemented naming a parameter that two layers would shard differently.
ModelShards model_shards(const StyledModel& styled, const ModelModules& modules,
                         const MeshSizes& mesh, const ParallelPlan& plan);

}  // namespace meshloom::planner
