// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/parameter_groups.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/nn/models/model.h"
#include "daemon/train/files/hf_names.h"
#include "planner/limits.h"
#include "planner/name_pattern.h"

namespace meshloom::train {
namespace {

std::string group_field(std::size_t group) {
  return fmt::format("run.optimizer.groups[{}].pattern", group);
}

/// Places in `names` of what a pattern names, whose field is `field`.
std::vector<std::size_t> covered_by(const std::string& pattern,
                                    const std::vector<std::string>& names,
                                    const std::string& field) {
  std::vector<std::size_t> covered;
  base::with_field(field, [&] {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (planner::covers_pattern(pattern, names[i])) covered.push_back(i);
  });
  return covered;
}

void check_pattern_count(const char* field, std::int64_t size, const nn::ModelConfig& model) {
  const std::int64_t most =
      std::min(planner::kMostPatterns, planner::kMostPatternLayers / model.num_layers);
  if (size > most)
    base::refuse_field(field, "has {} entries, at most {} are allowed for a model of {} layers",
                       size, most, model.num_layers);
}

std::vector<std::string> parameter_names(const nn::ModelConfig& config) {
  ExecutionContext context;
  const DeferParametersGuard defer(context);
  std::vector<std::string> names;
  for (const nn::NamedParameter& p :
       nn::make_model(context, config, DType::kFloat32)->named_parameters())
    names.push_back(p.name);
  return names;
}

/// The parameter of the model that a file knows by this second name, too.
std::optional<std::string> tied_parameter(const nn::ModelConfig& model, const std::string& name) {
  const nn::HfTiedNames& weights = hf_name_rules(model.architecture).tied_weights;
  if (model.tie_word_embeddings && name == weights.tied) return weights.parameter;
  const std::optional<nn::HfTiedNames>& bias = hf_name_rules(model.architecture).tied_bias;
  return bias && name == bias->tied ? std::optional(bias->parameter) : std::nullopt;
}

}  // namespace

std::vector<ParameterGroup> make_parameter_groups(const v1::OptimizerConfig& config) {
  std::vector<ParameterGroup> groups;
  for (const v1::ParameterGroup& given : config.groups()) {
    ParameterGroup& group = groups.emplace_back();
    group.pattern = given.pattern();
    if (given.has_lr_factor()) group.lr_factor = given.lr_factor();
    if (given.has_lr()) group.lr_factor = given.lr() == 0.0 ? 0.0 : given.lr() / config.lr();
    if (given.has_weight_decay()) group.weight_decay = given.weight_decay();
  }
  return groups;
}

std::vector<std::optional<std::size_t>> choose_groups(const std::vector<ParameterGroup>& groups,
                                                      const std::vector<std::string>& names) {
  std::vector<std::optional<std::size_t>> chosen(names.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string& pattern = groups[g].pattern;
    const std::string field = group_field(g);
    const std::vector<std::size_t> covered = covered_by(pattern, names, field);
    if (covered.empty()) base::refuse_field(field, "{}", planner::unmatched_text(pattern, names));
    for (const std::size_t i : covered) {
      if (chosen[i])
        base::refuse_field(field, "\"{}\" and \"{}\" of groups[{}] both name {}", pattern,
                           groups[*chosen[i]].pattern, *chosen[i], names[i]);
      chosen[i] = g;
    }
  }
  return chosen;
}

std::vector<bool> choose_frozen(const v1::TrainingConfig& training, const nn::ModelConfig& model,
                                const std::vector<std::string>& names) {
  std::vector<bool> frozen(names.size(), false);
  for (int p = 0; p < training.frozen_size(); ++p) {
    const std::string& pattern = training.frozen(p);
    const std::string field = fmt::format("run.training.frozen[{}]", p);
    const std::vector<std::size_t> covered = covered_by(pattern, names, field);
    for (const std::size_t i : covered) frozen[i] = true;
    if (!covered.empty()) continue;
    for (const std::string& name : {pattern, pattern + ".weight"})
      if (const auto tied = tied_parameter(model, name))
        base::refuse_field(field, "{} is tied to {}, which is the one to be named", name, *tied);
    base::refuse_field(field, "{}", planner::unmatched_text(pattern, names));
  }
  if (training.frozen_size() > 0 &&
      std::all_of(frozen.begin(), frozen.end(), [](bool f) { return f; }))
    base::refuse_field("run.training.frozen", "names all {} parameters: none is left to train",
                       names.size());
  return frozen;
}

void check_parameter_patterns(const v1::RunConfig& config, const nn::ModelConfig& model) {
  if (config.training().frozen().empty() && config.optimizer().groups().empty()) return;
  check_pattern_count("run.training.frozen", config.training().frozen_size(), model);
  check_pattern_count("run.optimizer.groups", config.optimizer().groups_size(), model);
  const std::vector<std::string> names = parameter_names(model);
  const std::vector<bool> frozen = choose_frozen(config.training(), model, names);
  const auto groups = choose_groups(make_parameter_groups(config.optimizer()), names);
  std::vector<bool> trained(static_cast<std::size_t>(config.optimizer().groups_size()), false);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (groups[i] && !frozen[i]) trained[*groups[i]] = true;
  for (std::size_t g = 0; g < trained.size(); ++g)
    if (!trained[g])
      base::refuse_field(group_field(g), "all that it names is frozen by run.training.frozen");
}

}  // namespace meshloom::train
