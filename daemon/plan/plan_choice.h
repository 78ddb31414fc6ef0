// SPDX-License-Identifier: Apache-2.0
// Meshes and plans of the wire and of files as the planner's values.
#pragma once

#include "planner/estimate/plan_choice.h"
#include "v1/config.pb.h"

namespace meshloom::plan {

/// A size that is left out is 1. Throws InvalidArgument for a negative size and for more than
/// 2^31 - 1 ranks.
planner::MeshSizes make_mesh_sizes(const v1::Mesh& mesh);

/// All of a plan but its dtype; tensor_parallel and fully_shard are on where the mesh has such
/// ranks. Patterns are looked up in the model's names. Throws InvalidArgument naming the field for
/// a pattern that matches nothing and for two that match equally well, and Unimplemented for what
/// has no estimate: context parallelism, blocks that keep different things for backward, styles
/// that do something else than the default plan.
planner::PlanChoice make_plan_choice(const v1::ParallelPlan& plan, const planner::MeshSizes& mesh,
                                     const planner::ModelShape& model);

planner::OptimizerState make_optimizer_state(const v1::OptimizerConfig& optimizer);

}  // namespace meshloom::plan
