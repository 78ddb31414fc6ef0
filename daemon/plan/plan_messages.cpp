// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/plan_messages.h"

namespace meshloom::plan {
namespace {

const char* phase_name(planner::TrafficPhase phase) {
  switch (phase) {
    case planner::TrafficPhase::kForward: return "forward";
    case planner::TrafficPhase::kBackward: return "backward";
    case planner::TrafficPhase::kGradients: return "gradients";
  }
  return "";
}

v1::StepTimeEstimate to_message(const planner::StepTime& time) {
  v1::StepTimeEstimate m;
  m.set_matmul(time.matmul);
  m.set_attention(time.attention);
  m.set_memory(time.memory);
  m.set_optimizer(time.optimizer);
  m.set_communication(time.communication);
  m.set_exposed_communication(time.exposed);
  m.set_total(time.total);
  m.set_tokens_per_second(time.tokens_per_second);
  m.set_attention_balance(time.attention_balance);
  m.set_mfu(time.utilization);
  return m;
}

/// Layouts as a file spells them: of one mesh dim, "-" for an argument that is left alone.
void add_layouts(const std::optional<planner::ArgumentLayouts>& layouts,
                 google::protobuf::RepeatedPtrField<std::string>* texts) {
  if (!layouts) return;
  for (const planner::ArgumentLayout& layout : *layouts)
    texts->Add(layout ? planner::to_string(layout->front()) : "-");
}

v1::ParallelStyle to_message(const planner::ParallelStyle& style) {
  v1::ParallelStyle m;
  m.set_style(planner::style_name(style.kind));
  add_layouts(style.input_layouts, m.mutable_input_layouts());
  add_layouts(style.desired_input_layouts, m.mutable_desired_input_layouts());
  add_layouts(style.output_layouts, m.mutable_output_layouts());
  add_layouts(style.desired_output_layouts, m.mutable_desired_output_layouts());
  if (style.use_local_input) m.set_use_local_input(*style.use_local_input);
  if (style.use_local_output) m.set_use_local_output(*style.use_local_output);
  if (style.kind == planner::StyleKind::kSequence) m.set_sequence_dim(style.sequence_dim);
  return m;
}

v1::ActivationCheckpoint to_message(planner::ActivationCheckpoint mode) {
  switch (mode) {
    case planner::ActivationCheckpoint::kFull: return v1::ACTIVATION_CHECKPOINT_FULL;
    case planner::ActivationCheckpoint::kSelective: return v1::ACTIVATION_CHECKPOINT_SELECTIVE;
    case planner::ActivationCheckpoint::kNone: break;
  }
  return v1::ACTIVATION_CHECKPOINT_NONE;
}

v1::FusionPlan to_message(const planner::FusionPlan& plan) {
  v1::FusionPlan m;
  m.set_mode(planner::to_string(plan.mode));
  for (const planner::FusionChoice& choice : plan.choices) {
    v1::FusionChoice& entry = *m.add_choices();
    entry.set_pattern(choice.pattern);
    entry.set_mode(planner::to_string(choice.mode));
  }
  m.set_gather_again(plan.gather_again);
  return m;
}

}  // namespace

v1::Mesh to_message(const planner::MeshSizes& mesh) {
  v1::Mesh m;
  m.set_dp(mesh.dp);
  m.set_fsdp(mesh.fsdp);
  m.set_cp(mesh.cp);
  m.set_tp(mesh.tp);
  return m;
}

v1::ParallelPlan to_message(const planner::ParallelPlan& plan) {
  v1::ParallelPlan m;
  m.set_tensor_parallel(plan.tensor_parallel);
  m.set_sequence_parallel(plan.sequence_parallel);
  if (plan.fusion != planner::FusionPlan{}) *m.mutable_fusion() = to_message(plan.fusion);
  if (plan.context_parallel != planner::ContextParallelPlan{}) {
    v1::ContextParallelPlan& context_parallel = *m.mutable_context_parallel();
    context_parallel.set_load_balancer(planner::to_string(plan.context_parallel.load_balancer));
    context_parallel.set_rotate(planner::to_string(plan.context_parallel.rotate));
    if (plan.context_parallel.ulysses_degree > 0)
      context_parallel.set_ulysses_degree(plan.context_parallel.ulysses_degree);
  }
  m.set_fully_shard(plan.fully_shard);
  if (plan.fully_shard) {
    v1::FullyShardOptions& options = *m.mutable_fully_shard_options();
    options.set_reshard_after_forward(plan.shards.reshard_after_forward);
    if (plan.shards.policy == planner::ShardPolicy::kLargestDivisible) {
      options.set_policy(v1::SHARD_POLICY_LARGEST_DIVISIBLE);
      options.set_min_elements(plan.shards.min_elements);
    }
    for (const planner::DimChoice& choice : plan.shards.choices) {
      v1::ShardChoice& entry = *options.add_choices();
      entry.set_pattern(choice.pattern);
      if (choice.dim) entry.set_dim(*choice.dim);
    }
  }
  m.set_activation_checkpoint(to_message(plan.checkpointing));
  for (const planner::CheckpointChoice& choice : plan.checkpoint_choices) {
    v1::CheckpointChoice& entry = *m.add_activation_checkpoint_choices();
    entry.set_pattern(choice.pattern);
    entry.set_mode(to_message(choice.mode));
  }
  m.set_dtype(dtype_name(plan.dtype));
  for (const planner::PatternStyles& entry : plan.styles) {
    v1::PatternStyles& styles = *m.add_styles();
    styles.set_pattern(entry.pattern);
    for (const planner::ParallelStyle& style : entry.styles)
      *styles.add_styles() = to_message(style);
  }
  return m;
}

v1::MemoryEstimate to_message(const planner::MemoryEstimate& memory) {
  v1::MemoryEstimate m;
  m.set_parameters(memory.parameters);
  m.set_gradients(memory.gradients);
  m.set_optimizer(memory.optimizer);
  m.set_activations(memory.activations);
  m.set_gathered(memory.gathered);
  m.set_workspace(memory.workspace);
  m.set_communication(memory.communication);
  m.set_process(memory.process);
  m.set_total(memory.total());
  return m;
}

v1::TrafficEstimate to_message(const planner::Traffic& traffic) {
  v1::TrafficEstimate m;
  m.set_mesh_dim(traffic.mesh_dim);
  m.set_collective(planner::to_string(traffic.kind));
  m.set_phase(phase_name(traffic.phase));
  m.set_what(traffic.what);
  m.set_calls(traffic.calls);
  m.set_data_bytes(traffic.data_bytes);
  m.set_bytes_sent(traffic.bytes_sent);
  return m;
}

v1::PlanEstimate to_message(const planner::Estimate& e, const std::string& cluster,
                            std::int64_t memory_limit) {
  v1::PlanEstimate m;
  *m.mutable_mesh() = to_message(e.mesh);
  *m.mutable_plan() = to_message(e.plan);
  m.set_ranks(e.mesh.ranks());
  m.set_global_batch_size(e.work.global_batch);
  m.set_micro_batch_size(e.work.micro_batch);
  m.set_seq_len(e.work.sequence);
  m.set_parameters(e.parameters);
  m.set_local_parameters(e.local_parameters);
  *m.mutable_memory() = to_message(e.memory);
  m.set_bytes_sent(planner::total_bytes_sent(e.traffic));
  for (const planner::Traffic& t : e.traffic) *m.add_traffic() = to_message(t);
  *m.mutable_seconds() = to_message(e.time);
  m.set_cluster(cluster);
  m.set_memory_limit_bytes(memory_limit);
  m.set_fits(memory_limit == 0 || e.memory.total() <= memory_limit);
  return m;
}

}  // namespace meshloom::plan
