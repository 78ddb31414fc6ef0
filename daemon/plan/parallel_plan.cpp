// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/parallel_plan.h"

#include <algorithm>
#include <array>

#include "daemon/base/given_number.h"
#include "planner/limits.h"
#include "planner/rank_count.h"

namespace meshloom::plan {
namespace {

using google::protobuf::RepeatedPtrField;
using planner::StyleKind;

/// An option of v1::ParallelStyle: whether it was given, and the styles that have it.
struct StyleOption {
  const char* name;
  bool given;
  std::vector<StyleKind> styles;
};

std::vector<StyleOption> options_of(const v1::ParallelStyle& s) {
  const std::vector<StyleKind> all = {StyleKind::kColwise,       StyleKind::kRowwise,
                                      StyleKind::kSequence,      StyleKind::kPrepareInput,
                                      StyleKind::kPrepareOutput, StyleKind::kPrepareInputOutput};
  const std::vector<StyleKind> inputs = {StyleKind::kColwise, StyleKind::kRowwise,
                                         StyleKind::kSequence, StyleKind::kPrepareInput,
                                         StyleKind::kPrepareInputOutput};
  const std::vector<StyleKind> outputs = {StyleKind::kColwise, StyleKind::kRowwise,
                                          StyleKind::kSequence, StyleKind::kPrepareOutput,
                                          StyleKind::kPrepareInputOutput};
  const std::vector<StyleKind> prepare_in = {StyleKind::kPrepareInput,
                                             StyleKind::kPrepareInputOutput};
  const std::vector<StyleKind> prepare_out = {StyleKind::kPrepareOutput,
                                              StyleKind::kPrepareInputOutput};
  return {{"input_layouts", !s.input_layouts().empty(), inputs},
          {"desired_input_layouts", !s.desired_input_layouts().empty(), prepare_in},
          {"output_layouts", !s.output_layouts().empty(), outputs},
          {"desired_output_layouts", !s.desired_output_layouts().empty(), prepare_out},
          {"use_local_input", s.has_use_local_input(), prepare_in},
          {"use_local_output", s.has_use_local_output(), all},
          {"sequence_dim", s.has_sequence_dim(), {StyleKind::kSequence}}};
}

void check_options(const v1::ParallelStyle& given, StyleKind kind, const std::string& field) {
  const std::vector<StyleOption> options = options_of(given);
  const auto has = [kind](const StyleOption& option) {
    return std::count(option.styles.begin(), option.styles.end(), kind) > 0;
  };
  std::vector<const char*> known;
  for (const StyleOption& option : options)
    if (has(option)) known.push_back(option.name);
  for (const StyleOption& option : options)
    if (option.given && !has(option))
      base::refuse_field(fmt::format("{}.{}", field, option.name),
                         "is no option of {}, which has {}", planner::style_name(kind),
                         fmt::join(known, ", "));
}

void check_dim(std::int64_t dim, const std::string& field) {
  if (dim < -planner::kMostActivationDims || dim >= planner::kMostActivationDims)
    base::refuse_field(field,
                       "dim {} is out of range, modules take and give at most {} dims [B, S, C]",
                       dim, planner::kMostActivationDims);
}

planner::ArgumentLayouts layouts_of(const RepeatedPtrField<std::string>& texts,
                                    const std::string& field) {
  planner::ArgumentLayouts layouts;
  for (const std::string& text : texts) {
    if (text == "-") {
      layouts.push_back(std::nullopt);
      continue;
    }
    const auto placement = base::with_field(field, [&] { return planner::parse_placement(text); });
    if (placement.is_shard()) check_dim(placement.dim, field);
    layouts.push_back(planner::Placements{placement});
  }
  return layouts;
}

planner::ParallelStyle style_of(const v1::ParallelStyle& given, const std::string& field) {
  planner::ParallelStyle style;
  style.kind =
      base::with_field(field + ".style", [&] { return planner::style_from_name(given.style()); });
  check_options(given, style.kind, field);
  const auto read = [&](const auto& texts, const char* name,
                        std::optional<planner::ArgumentLayouts>& target) {
    if (!texts.empty()) target = layouts_of(texts, fmt::format("{}.{}", field, name));
  };
  read(given.input_layouts(), "input_layouts", style.input_layouts);
  read(given.desired_input_layouts(), "desired_input_layouts", style.desired_input_layouts);
  read(given.output_layouts(), "output_layouts", style.output_layouts);
  read(given.desired_output_layouts(), "desired_output_layouts", style.desired_output_layouts);
  if (given.has_use_local_input()) style.use_local_input = given.use_local_input();
  if (given.has_use_local_output()) style.use_local_output = given.use_local_output();
  if (given.has_sequence_dim()) {
    check_dim(given.sequence_dim(), field + ".sequence_dim");
    style.sequence_dim = given.sequence_dim();
  }
  return style;
}

planner::StylePlan read_styles(const v1::ParallelPlan& plan, const std::string& field) {
  planner::StylePlan styles;
  for (int i = 0; i < plan.styles_size(); ++i) {
    const std::string entry_field = fmt::format("{}.styles[{}]", field, i);
    planner::PatternStyles& entry = styles.emplace_back();
    entry.pattern = plan.styles(i).pattern();
    for (int k = 0; k < plan.styles(i).styles_size(); ++k)
      entry.styles.push_back(
          style_of(plan.styles(i).styles(k), fmt::format("{}.styles[{}]", entry_field, k)));
    if (entry.styles.empty())
      base::refuse_field(entry_field + ".styles",
                         "is missing: what is to be done with the modules {}", entry.pattern);
  }
  return styles;
}

planner::FullyShardPlan read_shards(const v1::FullyShardOptions& given, const std::string& field) {
  if (!v1::ShardPolicy_IsValid(given.policy()))
    base::refuse_field(field + ".policy", "has the unknown value {}",
                       static_cast<int>(given.policy()));
  planner::FullyShardPlan shards;
  if (given.policy() == v1::SHARD_POLICY_LARGEST_DIVISIBLE)
    shards.policy = planner::ShardPolicy::kLargestDivisible;
  if (given.has_min_elements()) shards.min_elements = given.min_elements();
  if (given.has_reshard_after_forward())
    shards.reshard_after_forward = given.reshard_after_forward();
  for (const v1::ShardChoice& choice : given.choices())
    shards.choices.push_back(
        {choice.pattern(), choice.has_dim() ? std::optional<int>(choice.dim()) : std::nullopt});
  return shards;
}

planner::ActivationCheckpoint read_checkpoint(v1::ActivationCheckpoint mode,
                                              const std::string& field) {
  switch (mode) {
    case v1::ACTIVATION_CHECKPOINT_UNSPECIFIED:
    case v1::ACTIVATION_CHECKPOINT_NONE: return planner::ActivationCheckpoint::kNone;
    case v1::ACTIVATION_CHECKPOINT_SELECTIVE: return planner::ActivationCheckpoint::kSelective;
    case v1::ACTIVATION_CHECKPOINT_FULL: return planner::ActivationCheckpoint::kFull;
    default: base::refuse_field(field, "has the unknown value {}", static_cast<int>(mode));
  }
}

/// Refuses a pattern that one of the choices before has.
template <typename Choice>
void check_new_pattern(const std::vector<Choice>& before, const std::string& pattern,
                       const std::string& field) {
  for (const Choice& other : before)
    if (other.pattern == pattern) base::refuse_field(field, "{} is there twice", pattern);
}

std::vector<planner::CheckpointChoice> read_checkpoint_choices(const v1::ParallelPlan& plan,
                                                               const std::string& plan_field) {
  std::vector<planner::CheckpointChoice> choices;
  for (const v1::CheckpointChoice& given : plan.activation_checkpoint_choices()) {
    const std::string field =
        fmt::format("{}.activation_checkpoint_choices[{}]", plan_field, choices.size());
    if (given.mode() == v1::ACTIVATION_CHECKPOINT_UNSPECIFIED)
      base::refuse_field(field + ".mode", "is missing for {}: none, selective or full",
                         given.pattern());
    check_new_pattern(choices, given.pattern(), field + ".pattern");
    choices.push_back({given.pattern(), read_checkpoint(given.mode(), field + ".mode")});
  }
  return choices;
}

planner::FusionMode read_fusion_mode(const std::string& mode, const std::string& field) {
  const auto found = planner::find_fusion_mode(mode);
  if (!found) base::refuse_field(field, "is '{}', expected {}", mode, planner::kFusionModeNames);
  return *found;
}

planner::FusionPlan read_fusion(const v1::FusionPlan& given, const std::string& field) {
  planner::FusionPlan plan{.gather_again = given.gather_again()};
  if (!given.mode().empty()) plan.mode = read_fusion_mode(given.mode(), field + ".mode");
  for (const v1::FusionChoice& choice : given.choices()) {
    const std::string entry = fmt::format("{}.choices[{}]", field, plan.choices.size());
    check_new_pattern(plan.choices, choice.pattern(), entry + ".pattern");
    plan.choices.push_back({choice.pattern(), read_fusion_mode(choice.mode(), entry + ".mode")});
  }
  return plan;
}

planner::ContextParallelPlan read_context_parallel(const v1::ContextParallelPlan& given, int ranks,
                                                   const std::string& field) {
  planner::ContextParallelPlan plan;
  if (!given.load_balancer().empty()) {
    const auto balancer = planner::find_load_balancer(given.load_balancer());
    if (!balancer)
      base::refuse_field(field + ".load_balancer", "is '{}', expected {}", given.load_balancer(),
                         planner::kLoadBalancerNames);
    plan.load_balancer = *balancer;
  }
  if (!given.rotate().empty()) {
    const auto rotate = planner::find_rotate(given.rotate());
    if (!rotate)
      base::refuse_field(field + ".rotate", "is '{}', expected {}", given.rotate(),
                         planner::kRotateNames);
    plan.rotate = *rotate;
  }
  if (!given.has_ulysses_degree()) return plan;
  const int degree = given.ulysses_degree();
  base::check_given_positive(field + ".ulysses_degree", true, degree, "all ranks of cp");
  if (plan.rotate != planner::Rotate::kUlysses)
    base::refuse_field(field + ".ulysses_degree", "is {}, but rotate is {}", degree,
                       planner::to_string(plan.rotate));
  if (ranks % degree != 0)
    base::refuse_field(field + ".ulysses_degree", "is {}, which does not divide the {} ranks of cp",
                       degree, ranks);
  plan.ulysses_degree = degree;
  return plan;
}

}  // namespace

planner::MeshSizes make_mesh_sizes(const v1::Mesh& mesh) {
  const auto size = [](const char* field, bool is_given, std::int32_t n) {
    base::check_given_positive(field, is_given, n, "1");
    return is_given ? n : 1;
  };
  const planner::MeshSizes sizes{
      size("mesh.dp", mesh.has_dp(), mesh.dp()), size("mesh.fsdp", mesh.has_fsdp(), mesh.fsdp()),
      size("mesh.cp", mesh.has_cp(), mesh.cp()), size("mesh.tp", mesh.has_tp(), mesh.tp())};
  if (sizes.tp > planner::kMostTensorParallel)
    base::refuse_field("mesh.tp", "{} ranks are too many, expected at most {}", sizes.tp,
                       planner::kMostTensorParallel);
  const auto ranks = planner::rank_count(std::array{sizes.dp, sizes.fsdp, sizes.cp, sizes.tp});
  if (!ranks || *ranks > planner::kMostRanks)
    base::refuse_field("mesh", "{} has {} ranks, which are too many: expected at most {}",
                       planner::to_string(sizes), ranks ? std::to_string(*ranks) : "more than 2^31",
                       planner::kMostRanks);
  return sizes;
}

planner::ParallelPlan read_parallel_plan(const v1::ParallelPlan& given,
                                         const planner::MeshSizes& mesh, const std::string& field) {
  return {.tensor_parallel = given.tensor_parallel() || mesh.tp > 1,
          .sequence_parallel = given.sequence_parallel(),
          .styles = read_styles(given, field),
          .fusion = read_fusion(given.fusion(), field + ".fusion"),
          .context_parallel =
              read_context_parallel(given.context_parallel(), mesh.cp, field + ".context_parallel"),
          .fully_shard = given.fully_shard() || mesh.fsdp > 1,
          .shards = read_shards(given.fully_shard_options(), field + ".fully_shard_options"),
          .checkpointing =
              read_checkpoint(given.activation_checkpoint(), field + ".activation_checkpoint"),
          .checkpoint_choices = read_checkpoint_choices(given, field),
          .dtype = dtype_from_name(given.dtype()).value_or(DType::kFloat32)};
}

planner::OptimizerState make_optimizer_state(const v1::OptimizerConfig& optimizer) {
  if (optimizer.type() != v1::OPTIMIZER_TYPE_SGD) return planner::OptimizerState::kAdam;
  return optimizer.momentum() == 0.0 ? planner::OptimizerState::kSgd
                                     : planner::OptimizerState::kSgdMomentum;
}

}  // namespace meshloom::plan
