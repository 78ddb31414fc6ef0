// SPDX-License-Identifier: Apache-2.0
// The mesh and plan of a config: defaults, refusals, and what they stand for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/nn/models/model.h"
#include "daemon/parallel/fully_shard/shard_plan.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in mesh and plan of a config for a world of this size. Throws InvalidArgument or
/// Unimplemented with the field in the metadata.
void resolve_mesh_and_plan(v1::RunConfig& config, int world_size);

/// Checks what a resolved plan says about modules, parameters and blocks against the model, of
/// which nothing takes memory. Returns what is no error but may be a mistake: patterns of modules
/// that match nothing, styles that shard nothing, more ranks of tp than heads. Throws
/// InvalidArgument with the field.
std::vector<std::string> check_plan_fits(const v1::RunConfig& config, const nn::ModelConfig& model);

/// What every block keeps for backward, in the order of the blocks of these parameters. Throws
/// InvalidArgument with the field for a pattern that matches no block.
std::vector<nn::ActivationCheckpoint> make_block_checkpoints(
    const v1::ParallelPlan& plan, const std::vector<std::string>& parameters);

/// What a resolved plan says about fully_shard, patterns resolved against the model's parameter
/// names; nullopt where it says no. Throws InvalidArgument with the field for a pattern that
/// matches nothing and for two that match equally well.
std::optional<parallel::FullyShardOptions> make_fully_shard_options(
    const v1::ParallelPlan& plan, const std::vector<std::string>& parameters);

}  // namespace meshloom::train
