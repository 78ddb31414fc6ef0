// SPDX-License-Identifier: Apache-2.0
// The mesh and plan of a config: defaults, refusals, and what they stand for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/nn/models/model.h"
#include "daemon/parallel/fully_shard/shard_plan.h"
#include "daemon/parallel/parallelize_model.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in mesh and plan of a config for a world of this size. Throws InvalidArgument or
/// Unimplemented with the field in the metadata.
void resolve_mesh_and_plan(v1::RunConfig& config, int world_size);

/// Checks what a resolved plan says about parameters and blocks against the model. Throws
/// InvalidArgument with the field.
void check_plan_fits(const v1::RunConfig& config, const nn::ModelConfig& model);

/// What every block keeps for backward, in the order of the blocks of these parameters. Throws
/// InvalidArgument with the field for a pattern that matches no block.
std::vector<nn::ActivationCheckpoint> make_block_checkpoints(
    const v1::ParallelPlan& plan, const std::vector<std::string>& parameters);

/// What a plan says about tensor parallelism. Throws InvalidArgument with the field for styles and
/// layouts that there are not.
parallel::ModelPlan make_tensor_plan(const v1::ParallelPlan& plan);

/// What a resolved plan says about fully_shard, patterns resolved against the model's parameter
/// names; nullopt where it says no. Throws InvalidArgument with the field for a pattern that
/// matches nothing and for two that match equally well.
std::optional<parallel::FullyShardOptions> make_fully_shard_options(
    const v1::ParallelPlan& plan, const std::vector<std::string>& parameters);

}  // namespace meshloom::train
