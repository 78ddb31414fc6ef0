// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/job_memory.h"

#include <algorithm>
#include <map>

#include "daemon/plan/parallel_plan.h"
#include "daemon/plan/traced_model.h"
#include "kernels/base/device.h"
#include "kernels/base/error.h"

namespace meshloom::plan {
namespace {

/// Parameters that some layers shard otherwise than the others are whole in all.
void level_layers(planner::FullyShardPlan& plan, const planner::ModelModules& all) {
  if (plan.choices.empty()) return;
  const std::map<std::string, std::optional<int>> dims =
      planner::shard_options(plan, planner::parameter_names(all)).dims;
  for (const planner::ModuleShape& module : all.block) {
    for (const planner::ParameterShape& p : module.parameters) {
      const auto choice = [&](std::int64_t layer) {
        const auto found = dims.find(planner::full_name(all, module.name, layer) + "." + p.name);
        return found == dims.end() ? std::nullopt : std::optional(found->second);
      };
      bool alike = true;
      for (std::int64_t layer = 1; layer < all.layers && alike; ++layer)
        alike = choice(layer) == choice(0);
      // An exact name goes before every pattern.
      for (std::int64_t layer = 0; layer < all.layers && !alike; ++layer) {
        const std::string name = planner::full_name(all, module.name, layer) + "." + p.name;
        std::erase_if(plan.choices, [&](const auto& other) { return other.pattern == name; });
        plan.choices.push_back({name, std::nullopt});
      }
    }
  }
}

/// Of a plan that is the same for all layers. Styles that have no estimate count as if tp sharded
/// nothing.
planner::LocalModel upper_model(planner::ModelGraphs& model, const planner::MeshSizes& mesh,
                                planner::ParallelPlan plan, const planner::Workload& work) {
  // All blocks as those that keep most: the modes are in the order of what they free.
  for (const planner::CheckpointChoice& choice : plan.checkpoint_choices)
    plan.checkpointing = std::min(plan.checkpointing, choice.mode);
  plan.checkpoint_choices.clear();
  level_layers(plan.shards, model.modules());
  try {
    return planner::local_model(model, mesh, plan, work);
  } catch (const Unimplemented&) {
    plan.styles = {{"no module", {}}};
    return planner::local_model(model, mesh, plan, work);
  }
}

}  // namespace

planner::MemoryEstimate estimate_job_memory(const v1::RunConfig& resolved,
                                            const nn::ModelConfig& config) {
  TracedModel model(config);
  const planner::MeshSizes mesh = make_mesh_sizes(resolved.mesh());
  const planner::ParallelPlan plan = read_parallel_plan(resolved.plan(), mesh, "run.plan");
  check_internal(dtype_from_name(resolved.plan().dtype()).has_value(),
                 "memory of a job: the dtype \"{}\" is not resolved", resolved.plan().dtype());
  const v1::TrainingConfig& training = resolved.training();
  // A run that is driven step by step has no number of samples of a step.
  const std::int64_t one_each =
      training.micro_batch_size() * std::int64_t{mesh.dp} * std::int64_t{mesh.fsdp};
  const bool stepped = training.global_batch_size() == 0;
  const bool on_device = resolved.device().starts_with(kind_name(DeviceKind::kCuda));
  const planner::Workload work{stepped ? one_each : training.global_batch_size(),
                               training.micro_batch_size(),
                               training.seq_len(),
                               make_optimizer_state(resolved.optimizer()),
                               stepped,
                               {training.frozen().begin(), training.frozen().end()},
                               on_device ? DeviceKind::kCuda : DeviceKind::kCpu};
  if (const auto reason = planner::why_invalid(model.shape(), mesh, plan, work))
    throw InvalidArgument("memory of a job: " + *reason, "INVALID_PLAN");
  const planner::LocalModel local = upper_model(model, mesh, plan, work);
  planner::MemoryEstimate estimate = planner::estimate_memory(local);
  estimate.staged = planner::staged_bytes(local);
  return estimate;
}

planner::MemoryEstimate on_device(const planner::MemoryEstimate& estimate) {
  planner::MemoryEstimate part = estimate;
  part.communication = estimate.exchanged;
  part.process = part.staged = 0;
  return part;
}

planner::MemoryEstimate beside_device(const planner::MemoryEstimate& estimate) {
  planner::MemoryEstimate part;
  part.communication = estimate.staged;
  part.process = estimate.process;
  return part;
}

}  // namespace meshloom::plan
