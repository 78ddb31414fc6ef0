// SPDX-License-Identifier: Apache-2.0
// Meshes and plans of the wire and of files as the planner's values.
#pragma once

#include <string>

#include "planner/estimate/workload.h"
#include "v1/config.pb.h"

namespace meshloom::plan {

/// Makes the sizes. A size that is left out is 1. Throws InvalidArgument for a negative size and
/// for more ranks than planner/limits.h allows.
planner::MeshSizes make_mesh_sizes(const v1::Mesh& mesh);

/// Reads all of a plan; tensor_parallel and fully_shard are on if the mesh has such ranks. The
/// dtype is float32 if it is left out or `auto`, which this does not decide. `field` is where the
/// plan stands ("run.plan"). Throws InvalidArgument with the field for styles, options of a style,
/// layouts and values that there are not.
planner::ParallelPlan read_parallel_plan(const v1::ParallelPlan& plan,
                                         const planner::MeshSizes& mesh, const std::string& field);

planner::OptimizerState make_optimizer_state(const v1::OptimizerConfig& optimizer);

}  // namespace meshloom::plan
