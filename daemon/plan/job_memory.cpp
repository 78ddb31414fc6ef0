// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/job_memory.h"

#include <algorithm>

#include "daemon/plan/model_shape.h"
#include "daemon/plan/plan_choice.h"
#include "kernels/base/error.h"

namespace meshloom::plan {
namespace {

/// All blocks as those that keep most: the modes are in the order of what they free.
void level_checkpoints(v1::ParallelPlan& plan) {
  v1::ActivationCheckpoint mode = plan.activation_checkpoint();
  for (const v1::CheckpointChoice& choice : plan.activation_checkpoint_choices())
    mode = std::min(mode, choice.mode());
  plan.set_activation_checkpoint(mode);
  plan.clear_activation_checkpoint_choices();
}

/// Parameters that some layers shard otherwise than the others are whole in all.
void level_layers(planner::ShardOptions& shards, const planner::ModelShape& model) {
  if (shards.dims.empty()) return;
  const planner::ModelParameters all = planner::model_parameters(model);
  for (const planner::ParameterShape& p : all.block) {
    const auto name = [&](std::int64_t layer) {
      return fmt::format("{}.{}.{}", all.block_prefix, layer, p.name);
    };
    const auto choice = [&](std::int64_t layer) { return shards.dims.find(name(layer)); };
    const auto end = shards.dims.end();
    const auto first = choice(0);
    bool alike = true;
    for (std::int64_t layer = 1; layer < model.layers && alike; ++layer) {
      const auto other = choice(layer);
      alike = (first == end) == (other == end) && (first == end || first->second == other->second);
    }
    if (alike) continue;
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
      shards.dims[name(layer)] = std::nullopt;
  }
}

planner::PlanChoice make_upper_choice(v1::ParallelPlan plan, const planner::MeshSizes& mesh,
                                      const planner::ModelShape& model) {
  level_checkpoints(plan);
  planner::PlanChoice choice;
  try {
    choice = make_plan_choice(plan, mesh, model);
  } catch (const Unimplemented&) {
    plan.clear_styles();
    choice = make_plan_choice(plan, mesh, model);
    choice.tensor_groups = {false, false, false, false};
  }
  level_layers(choice.shards, model);
  return choice;
}

}  // namespace

planner::MemoryEstimate estimate_job_memory(const v1::RunConfig& resolved,
                                            const nn::ModelConfig& config) {
  const planner::ModelShape model = make_model_shape(config);
  planner::check_model_shape(model);
  const planner::MeshSizes mesh = make_mesh_sizes(resolved.mesh());
  planner::PlanChoice choice = make_upper_choice(resolved.plan(), mesh, model);
  const std::optional<DType> dtype = dtype_from_name(resolved.plan().dtype());
  check_internal(dtype.has_value(), "memory of a job: the dtype \"{}\" is not resolved",
                 resolved.plan().dtype());
  choice.dtype = *dtype;
  choice.optimizer = make_optimizer_state(resolved.optimizer());
  const v1::TrainingConfig& training = resolved.training();
  const planner::Workload work{training.global_batch_size(), training.micro_batch_size(),
                               training.seq_len()};
  if (const auto reason = planner::why_invalid(model, mesh, choice, work))
    throw InvalidArgument("memory of a job: " + *reason, "INVALID_PLAN");
  return planner::estimate_memory(planner::local_model(model, mesh, choice, work));
}

}  // namespace meshloom::plan
