// SPDX-License-Identifier: Apache-2.0
// ModelShards: which dim fully_shard shards of every parameter of a model.
#pragma once

#include <vector>

#include "planner/estimate/model_shape.h"
#include "planner/estimate/plan_choice.h"
#include "planner/parameter_shards.h"

namespace meshloom::planner {

/// One choice per parameter, in the order of ModelParameters; those of `block` hold for every
/// layer. Without fully_shard, or on one rank of fsdp, no dim of any.
struct ModelShards {
  std::vector<ShardChoice> before, block, after;
};

/// Throws InvalidArgument naming a parameter whose hand-made choice is no dim of it, or a name that
/// is no parameter, and Unimplemented naming a parameter that two layers would shard differently.
ModelShards model_shards(const ModelParameters& parameters, std::int64_t layers,
                         const MeshSizes& mesh, const PlanChoice& plan);

/// The names of all parameters of all layers, in order.
std::vector<std::string> parameter_names(const ModelParameters& parameters, std::int64_t layers);

}  // namespace meshloom::planner
