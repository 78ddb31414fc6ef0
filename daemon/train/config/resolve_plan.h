// SPDX-License-Identifier: Apache-2.0
// The mesh and plan of a config: defaults, refusals, and what they stand for.
#pragma once

#include <string>
#include <vector>

#include "daemon/nn/models/model.h"
#include "planner/plan/parallel_plan.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in mesh and plan of a config whose device is resolved for a world of this size. Throws
/// InvalidArgument or Unimplemented with the field in the metadata.
void resolve_mesh_and_plan(v1::RunConfig& config, int world_size);

/// Tells whether the ranks of cp share the work of each document, which batches must then tell.
bool balances_documents(const v1::ParallelPlan& plan);

/// Tells whether a plan leaves open how keys travel along cp.
bool rotate_is_auto(const v1::ParallelPlan& plan);
/// Tells whether a plan leaves open which tokens the ranks of cp hold.
bool balancer_is_auto(const v1::ParallelPlan& plan);
/// Writes out what auto is in run.plan.context_parallel, if cp has more than one rank: the way of
/// moving keys, and the balancer if it is that of the model's windows (what auto is otherwise
/// depends on the documents of a batch). Mesh, dtype, sequence and micro batch are resolved.
void resolve_context_parallel(v1::RunConfig& config, const nn::ModelConfig& model,
                              int ranks_per_host);

/// Checks what a resolved plan says about modules, parameters and blocks against the model, of
/// which nothing takes memory. Returns what is no error but may be a mistake: patterns of modules
/// that match nothing, styles that shard nothing, more ranks of tp than heads. Throws
/// InvalidArgument with the field.
std::vector<std::string> check_plan_fits(const v1::RunConfig& config, const nn::ModelConfig& model);

/// Returns the plan of a resolved config.
planner::ParallelPlan make_plan(const v1::RunConfig& config);

/// Returns the bytes by which ranks of tp exchange what fused products take along, in steps of a
/// resolved config; 0 without such products.
std::int64_t fused_workspace_of(const v1::RunConfig& config, const nn::ModelConfig& model);

}  // namespace meshloom::train
