// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/plans/plan_text.h"

#include <fmt/ranges.h>

#include <vector>

#include "daemon/base/enum_names.h"
#include "planner/plan/mesh_sizes.h"

namespace meshloom::cli {
namespace {

std::string checkpoint_name(v1::ActivationCheckpoint mode) {
  return base::enum_spelling(*v1::ActivationCheckpoint_descriptor()->FindValueByNumber(mode));
}

std::string fully_shard_text(const v1::FullyShardOptions& options) {
  std::string text = "fully_shard";
  if (!options.reshard_after_forward()) text += " without reshard";
  if (options.policy() == v1::SHARD_POLICY_LARGEST_DIVISIBLE)
    text += fmt::format(" largest_divisible from {} elements", options.min_elements());
  std::vector<std::string> choices;
  for (const v1::ShardChoice& choice : options.choices())
    choices.push_back(
        fmt::format("{} {}", choice.pattern(),
                    choice.has_dim() ? fmt::format("dim {}", choice.dim()) : "whole"));
  if (!choices.empty()) text += fmt::format(" ({})", fmt::join(choices, "; "));
  return text;
}

/// What was chosen: nothing where cp has one rank.
std::string context_parallel_text(const v1::ContextParallelPlan& plan) {
  std::vector<std::string> parts;
  const auto named = [](const std::string& name) { return !name.empty() && name != "auto"; };
  if (named(plan.load_balancer())) parts.push_back(plan.load_balancer());
  if (named(plan.rotate())) parts.push_back(plan.rotate());
  if (plan.ulysses_degree() > 0) parts.back() += fmt::format(" {}", plan.ulysses_degree());
  return parts.empty() ? "" : fmt::format("context_parallel {}", fmt::join(parts, " "));
}

std::string fusion_text(const v1::FusionPlan& plan) {
  std::vector<std::string> parts;
  if (!plan.mode().empty() && plan.mode() != "auto") parts.push_back(plan.mode());
  for (const v1::FusionChoice& choice : plan.choices())
    parts.push_back(fmt::format("{} of {}", choice.mode(), choice.pattern()));
  if (plan.gather_again()) parts.push_back("gather again");
  return parts.empty() ? "" : fmt::format("fusion {}", fmt::join(parts, ", "));
}

std::string checkpoint_text(const v1::ParallelPlan& plan) {
  std::string text;
  if (plan.activation_checkpoint() > v1::ACTIVATION_CHECKPOINT_NONE)
    text = "activation_checkpoint " + checkpoint_name(plan.activation_checkpoint());
  for (const v1::CheckpointChoice& choice : plan.activation_checkpoint_choices())
    text += fmt::format("{} of {}",
                        text.empty() ? "activation_checkpoint " + checkpoint_name(choice.mode())
                                     : " but " + checkpoint_name(choice.mode()),
                        choice.pattern());
  return text;
}

}  // namespace

std::string mesh_text(const v1::Mesh& mesh) {
  return planner::to_string(planner::MeshSizes{mesh.dp(), mesh.fsdp(), mesh.cp(), mesh.tp()});
}

std::string plan_text(const v1::ParallelPlan& plan) {
  std::vector<std::string> parts;
  if (plan.tensor_parallel()) parts.push_back("tensor_parallel");
  if (plan.sequence_parallel()) parts.push_back("sequence_parallel");
  if (const std::string text = fusion_text(plan.fusion()); !text.empty()) parts.push_back(text);
  if (plan.has_context_parallel())
    if (const std::string text = context_parallel_text(plan.context_parallel()); !text.empty())
      parts.push_back(text);
  if (plan.fully_shard()) parts.push_back(fully_shard_text(plan.fully_shard_options()));
  if (const std::string text = checkpoint_text(plan); !text.empty()) parts.push_back(text);
  parts.push_back(plan.dtype());
  std::vector<std::string> patterns;
  for (const v1::PatternStyles& styles : plan.styles()) patterns.push_back(styles.pattern());
  if (!patterns.empty())
    parts.push_back(fmt::format("own styles for {}", fmt::join(patterns, " and ")));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string device_text(const v1::RunConfig& resolved) {
  return resolved.device().empty() ? "cpu" : resolved.device();
}

}  // namespace meshloom::cli
