// SPDX-License-Identifier: Apache-2.0
// What `meshloom plan` and PlanService answer: one way from a query to the planner and back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "daemon/nn/models/model_config.h"
#include "planner/estimate/machine.h"
#include "planner/estimate/model_modules.h"
#include "planner/estimate/model_shape.h"
#include "planner/estimate/workload.h"
#include "v1/plan.pb.h"

namespace meshloom::plan {

/// Returns the query's cluster, in full or by its name; local_cpu if it has neither. Throws
/// NotFound.
planner::Machine query_machine(const v1::PlanQuery& query);

struct MeshAndPlan {
  planner::MeshSizes mesh;
  planner::ParallelPlan plan;
};
/// Reads the query's plan: tensor_parallel and fully_shard are on if the mesh has such ranks.
/// `machine` decides what dtype "auto" means. Throws as read_parallel_plan, and InvalidArgument for
/// a plan that contradicts the mesh and for patterns that match nothing.
MeshAndPlan query_plan(const v1::PlanQuery& query, const planner::ModelModules& modules,
                       const planner::Machine& machine);

/// Reads the query's work. Defaults: the model's context, one sample a micro batch, one micro batch
/// a rank.
planner::Workload query_work(const v1::PlanQuery& query, const planner::ModelShape& model,
                             const planner::MeshSizes& mesh);

/// Returns float32, bfloat16, or what is faster on the machine for "auto" and "".
DType query_dtype(const std::string& name, const planner::Machine& machine);

/// Returns the bytes that one of so many ranks may use.
std::int64_t query_memory_limit(const v1::PlanQuery& query, const planner::Machine& machine,
                                std::int64_t ranks);

// The next three answer a query. `name` is what the model is called in them. They throw
// InvalidArgument (INVALID_PLAN) for what cannot run, and Unimplemented for what has no estimate.
v1::PlanDescription describe_plan(const std::string& name, const nn::ModelConfig& config,
                                  const v1::PlanQuery& query, std::int64_t rank);
v1::PlanEstimate estimate_plan(const nn::ModelConfig& config, const v1::PlanQuery& query);
/// `before_plan` as in planner::SearchRequest.
v1::PlanSearch search_plans(const std::string& name, const nn::ModelConfig& config,
                            const v1::PlanSearchQuery& query,
                            std::function<void(std::int64_t plans_tried)> before_plan = {});

}  // namespace meshloom::plan
