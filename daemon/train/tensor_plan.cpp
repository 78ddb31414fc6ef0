// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/tensor_plan.h"

#include <algorithm>
#include <array>

#include "daemon/parallel/tensor_parallel/default_plan.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "daemon/train/field_error.h"

namespace meshloom::train {
namespace {

using google::protobuf::RepeatedPtrField;
using parallel::StyleKind;

constexpr int kDims = nn::Model::kMostDims;

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
      refuse_field(fmt::format("{}.{}", field, option.name), "is no option of {}, which has {}",
                   parallel::style_name(kind), fmt::join(known, ", "));
}

void check_dim(std::int64_t dim, const std::string& field) {
  if (dim < -kDims || dim >= kDims)
    refuse_field(field, "dim {} is out of range, modules take and give at most {} dims [B, S, C]",
                 dim, kDims);
}

parallel::ArgumentLayouts layouts_of(const RepeatedPtrField<std::string>& texts,
                                     const std::string& field) {
  parallel::ArgumentLayouts layouts;
  for (const std::string& text : texts) {
    if (text == "-") {
      layouts.push_back(std::nullopt);
      continue;
    }
    const auto placement = with_field(field, [&] { return planner::parse_placement(text); });
    if (placement.is_shard()) check_dim(placement.dim, field);
    layouts.push_back(planner::Placements{placement});
  }
  return layouts;
}

parallel::ParallelStyle style_of(const v1::ParallelStyle& given, const std::string& field) {
  parallel::ParallelStyle style;
  style.kind =
      with_field(field + ".style", [&] { return parallel::style_from_name(given.style()); });
  check_options(given, style.kind, field);
  const auto read = [&](const auto& texts, const char* name,
                        std::optional<parallel::ArgumentLayouts>& target) {
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

}  // namespace

parallel::ModelPlan make_tensor_plan(const v1::ParallelPlan& plan) {
  parallel::ModelPlan result;
  result.tensor_parallel = plan.tensor_parallel();
  result.sequence_parallel = plan.sequence_parallel();
  for (int i = 0; i < plan.styles_size(); ++i) {
    const std::string field = fmt::format("run.plan.styles[{}]", i);
    parallel::PatternStyles& entry = result.styles.emplace_back();
    entry.pattern = plan.styles(i).pattern();
    for (int k = 0; k < plan.styles(i).styles_size(); ++k)
      entry.styles.push_back(
          style_of(plan.styles(i).styles(k), fmt::format("{}.styles[{}]", field, k)));
  }
  return result;
}

std::vector<std::string> check_tensor_plan(const v1::RunConfig& config, nn::Module& model) {
  const parallel::ModelPlan plan = make_tensor_plan(config.plan());
  if (plan.styles.empty() || config.mesh().tp() <= 1) return {};
  const auto mesh = std::make_shared<const planner::MeshLayout>(
      planner::MeshLayout({{"tp", config.mesh().tp()}}));
  const std::string field = "run.plan.styles";
  auto [warnings, applied, sharding] =
      with_field(field, [&] { return parallel::check_styles(model, mesh, plan.styles); });
  if (sharding == 0)
    warnings.push_back(
        "no parameter is sharded: each of the ranks of tp holds and computes them all");
  for (std::string& warning : warnings) warning = fmt::format("{}: {}", field, warning);
  return warnings;
}

}  // namespace meshloom::train
