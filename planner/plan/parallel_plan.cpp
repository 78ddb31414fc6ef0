// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/parallel_plan.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "planner/name_pattern.h"

namespace meshloom::planner {
namespace {

/// The patterns of choices, of which each matches one of `names`. `what` says what those are.
template <typename Choice>
std::vector<std::string> patterns_of(const std::vector<Choice>& choices,
                                     const std::vector<std::string>& names, const char* what) {
  std::vector<std::string> patterns;
  for (const Choice& choice : choices) {
    const std::string& pattern = choice.pattern;
    check(std::any_of(names.begin(), names.end(),
                      [&](const auto& name) { return matches_pattern(pattern, name); }),
          "{}; patterns name {}, such as {}", unmatched_text(pattern, names), what,
          names.empty() ? "none" : names.front());
    patterns.push_back(pattern);
  }
  return patterns;
}

}  // namespace

std::string to_string(const ParallelPlan& plan) {
  std::string text;
  const auto add = [&](bool wanted, const char* part) {
    if (wanted) text += fmt::format("{}{}", text.empty() ? "" : ", ", part);
  };
  add(plan.tensor_parallel,
      plan.styles.empty() ? "tensor_parallel" : "tensor_parallel with own styles");
  add(plan.sequence_parallel, "sequence_parallel");
  if (plan.fusion.mode != FusionMode::kAuto)
    add(true, fmt::format("fusion {}", to_string(plan.fusion.mode)).c_str());
  add(!plan.fusion.choices.empty(), "chosen fusion");
  add(plan.fusion.gather_again, "gather again");
  const ContextParallelPlan& sequences = plan.context_parallel;
  add(sequences.load_balancer != LoadBalancer::kAuto, to_string(sequences.load_balancer));
  add(sequences.rotate != Rotate::kAuto, to_string(sequences.rotate));
  add(plan.fully_shard, "fully_shard");
  add(plan.fully_shard && plan.shards.policy == ShardPolicy::kLargestDivisible,
      "policy largest_divisible");
  add(plan.fully_shard && !plan.shards.choices.empty(), "chosen dims");
  add(plan.fully_shard && !plan.shards.reshard_after_forward, "no reshard after forward");
  add(plan.checkpointing == ActivationCheckpoint::kSelective, "activation_checkpoint selective");
  add(plan.checkpointing == ActivationCheckpoint::kFull, "activation_checkpoint full");
  add(true, dtype_name(plan.dtype));
  return text;
}

StylePlan styles_of(const ParallelPlan& plan, const StylePlan& default_styles) {
  if (plan.styles.empty()) return default_styles;
  StylePlan styles = plan.styles;
  for (PatternStyles& entry : styles)
    for (ParallelStyle& style : entry.styles)
      if (!style.use_local_output) style.use_local_output = false;
  return styles;
}

ShardOptions shard_options(const FullyShardPlan& plan, const std::vector<std::string>& parameters) {
  ShardOptions options{.policy = plan.policy, .min_elements = plan.min_elements};
  const std::vector<std::string> patterns = patterns_of(plan.choices, parameters, "parameters");
  if (patterns.empty()) return options;
  for (const std::string& name : parameters)
    if (const auto best = best_pattern(patterns, name))
      options.dims[name] = plan.choices[*best].dim;
  return options;
}

std::vector<ActivationCheckpoint> block_checkpoints(const ParallelPlan& plan,
                                                    const std::vector<std::string>& parameters) {
  std::vector<std::string> blocks;
  for (const std::string& name : parameters) {
    const std::string block(unit_of(name));
    if (!block.empty() && (blocks.empty() || blocks.back() != block)) blocks.push_back(block);
  }
  const std::vector<std::string> patterns = patterns_of(plan.checkpoint_choices, blocks, "blocks");
  std::vector<ActivationCheckpoint> modes;
  for (const std::string& block : blocks) {
    const auto best = best_pattern(patterns, block);
    modes.push_back(best ? plan.checkpoint_choices[*best].mode : plan.checkpointing);
  }
  return modes;
}

}  // namespace meshloom::planner
