// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/plan_choice.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "planner/estimate/model_shards.h"
#include "planner/name_pattern.h"
#include "planner/rank_count.h"

namespace meshloom::plan {
namespace {

using Layouts = google::protobuf::RepeatedPtrField<std::string>;

/// Whether one layout is meant: given, or what its style takes where it is left out.
bool means(const Layouts& given, const std::string& left_out, const std::string& expected) {
  return given.size() < 2 && (given.empty() ? left_out : given[0]) == expected;
}

/// Whether a style says what the default plan does.
bool has_plain_layouts(const v1::ParallelStyle& style, const std::string& pattern) {
  const bool columns = style.style() == "ColwiseParallel";
  return means(style.input_layouts(), columns ? "R" : "S(-1)",
               planner::default_input_layout(style.style(), pattern)) &&
         means(style.output_layouts(), columns ? "S(-1)" : "R",
               planner::default_output_layout(style.style(), pattern)) &&
         style.desired_input_layouts().empty() && style.desired_output_layouts().empty() &&
         !style.use_local_input() && !style.use_local_output() && !style.has_sequence_dim();
}

planner::Checkpointing checkpointing_of(v1::ActivationCheckpoint mode) {
  switch (mode) {
    case v1::ACTIVATION_CHECKPOINT_SELECTIVE: return planner::Checkpointing::kSelective;
    case v1::ACTIVATION_CHECKPOINT_FULL: return planner::Checkpointing::kFull;
    default: return planner::Checkpointing::kNone;
  }
}

planner::ShardOptions make_shard_options(const v1::FullyShardOptions& given,
                                         const planner::ModelShape& model) {
  planner::ShardOptions options;
  if (given.policy() == v1::SHARD_POLICY_LARGEST_DIVISIBLE)
    options.policy = planner::ShardPolicy::kLargestDivisible;
  if (given.has_min_elements()) options.min_elements = given.min_elements();
  if (given.choices().empty()) return options;
  const std::vector<std::string> names =
      planner::parameter_names(planner::model_parameters(model), model.layers);
  std::vector<std::string> patterns;
  for (const v1::ShardChoice& choice : given.choices()) patterns.push_back(choice.pattern());
  try {
    for (const std::string& pattern : patterns)
      check(std::any_of(
                names.begin(), names.end(),
                [&](const std::string& name) { return planner::matches_pattern(pattern, name); }),
            "{}", planner::unmatched_text(pattern, names));
    for (const std::string& name : names) {
      const auto best = planner::best_pattern(patterns, name);
      if (!best) continue;
      const v1::ShardChoice& choice = given.choices(static_cast<int>(*best));
      options.dims[name] = choice.has_dim() ? std::optional<int>(choice.dim()) : std::nullopt;
    }
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("plan.fully_shard_options.choices: {}", error.what()));
  }
  return options;
}

/// Without styles: all parts.
planner::TensorGroups make_tensor_groups(const v1::ParallelPlan& plan,
                                         const planner::ModelShape& model) {
  if (plan.styles().empty()) return {};
  std::vector<planner::ModuleStyle> styles;
  for (const v1::PatternStyles& entry : plan.styles()) {
    if (entry.styles_size() != 1)
      throw Unimplemented(fmt::format("plan.styles: {} has {} styles, one is estimated",
                                      entry.pattern(), entry.styles_size()));
    const v1::ParallelStyle& style = entry.styles(0);
    styles.push_back({entry.pattern(), style.style(), has_plain_layouts(style, entry.pattern())});
  }
  return planner::groups_of_styles(model, styles);
}

}  // namespace

planner::MeshSizes make_mesh_sizes(const v1::Mesh& mesh) {
  const auto size = [](const char* name, std::int32_t n) {
    check(n >= 0, "mesh.{}: must not be negative, got {}", name, n);
    return n == 0 ? 1 : n;
  };
  const planner::MeshSizes sizes{size("dp", mesh.dp()), size("fsdp", mesh.fsdp()),
                                 size("cp", mesh.cp()), size("tp", mesh.tp())};
  check(planner::rank_count(std::array{sizes.dp, sizes.fsdp, sizes.cp, sizes.tp}).has_value(),
        "mesh {}: more than 2^31 - 1 ranks are too many", planner::to_string(sizes));
  return sizes;
}

planner::PlanChoice make_plan_choice(const v1::ParallelPlan& given, const planner::MeshSizes& mesh,
                                     const planner::ModelShape& model) {
  if (given.has_context_parallel())
    throw Unimplemented("plan.context_parallel: is not offered by this build");
  if (!given.activation_checkpoint_choices().empty())
    throw Unimplemented(
        "plan.activation_checkpoint_choices: blocks that keep different things are not estimated, "
        "only activation_checkpoint for all of them");
  const v1::FullyShardOptions& shards = given.fully_shard_options();
  planner::PlanChoice choice;
  choice.tensor_parallel = given.tensor_parallel() || mesh.tp > 1;
  choice.fully_shard = given.fully_shard() || mesh.fsdp > 1;
  choice.sequence_parallel = given.sequence_parallel();
  choice.tensor_groups = make_tensor_groups(given, model);
  choice.reshard_after_forward =
      !shards.has_reshard_after_forward() || shards.reshard_after_forward();
  choice.shards = make_shard_options(shards, model);
  choice.checkpointing = checkpointing_of(given.activation_checkpoint());
  return choice;
}

planner::OptimizerState make_optimizer_state(const v1::OptimizerConfig& optimizer) {
  if (optimizer.type() != v1::OPTIMIZER_TYPE_SGD) return planner::OptimizerState::kAdam;
  return optimizer.momentum() == 0.0 ? planner::OptimizerState::kSgd
                                     : planner::OptimizerState::kSgdMomentum;
}

}  // namespace meshloom::plan
