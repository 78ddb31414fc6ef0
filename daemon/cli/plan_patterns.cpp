// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/plan_patterns.h"

#include <algorithm>

#include "daemon/cli/exit_code.h"
#include "kernels/base/error.h"
#include "planner/estimate/model_shards.h"
#include "planner/name_pattern.h"

namespace meshloom::cli {
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

}  // namespace

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
  } catch (const Error& error) {
    throw CliError(kUsage, fmt::format("plan.fully_shard_options.choices: {}", error.what()));
  }
  return options;
}

planner::TensorGroups make_tensor_groups(const v1::ParallelPlan& plan,
                                         const planner::ModelShape& model) {
  if (plan.styles().empty()) return {};
  std::vector<planner::ModuleStyle> styles;
  for (const v1::PatternStyles& entry : plan.styles()) {
    if (entry.styles_size() != 1)
      throw CliError(kUsage, fmt::format("plan.styles: {} has {} styles, one is estimated",
                                         entry.pattern(), entry.styles_size()));
    const v1::ParallelStyle& style = entry.styles(0);
    styles.push_back({entry.pattern(), style.style(), has_plain_layouts(style, entry.pattern())});
  }
  try {
    return planner::groups_of_styles(model, styles);
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
}

}  // namespace meshloom::cli
