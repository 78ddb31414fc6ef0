// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/styled_model.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "planner/name_pattern.h"

namespace meshloom::planner {
namespace {

/// Finds the styles of modules.
class Styles {
 public:
  Styles(const ModelGraphs& model, const ParallelPlan& plan)
      : own_(!plan.styles.empty()),
        layers_(model.modules().layers),
        plan_(styles_of(plan, model.default_styles(plan.sequence_parallel))) {
    for (const PatternStyles& entry : plan_) patterns_.push_back(entry.pattern);
    if (best_pattern(patterns_, ""))
      throw Unimplemented("plan.styles: a style of the model itself is not estimated");
  }

  const std::vector<ParallelStyle>& of(const std::string& name) const {
    static const std::vector<ParallelStyle> none;
    const auto best = best_pattern(patterns_, name);
    return best ? plan_[*best].styles : none;
  }
  /// Of a module of every layer.
  const std::vector<ParallelStyle>& of_layers(const ModelModules& all,
                                              const std::string& module) const {
    const std::vector<ParallelStyle>& first = of(full_name(all, module, 0));
    // Default styles are those of every layer.
    for (std::int64_t layer = 1; own_ && layer < layers_; ++layer)
      if (of(full_name(all, module, layer)) != first)
        throw Unimplemented(fmt::format(
            "plan.styles: {} and {} have different styles; styles of some layers only are not "
            "estimated",
            full_name(all, module, 0), full_name(all, module, layer)));
    return first;
  }

 private:
  bool own_;
  std::int64_t layers_;
  StylePlan plan_;
  std::vector<std::string> patterns_;
};

StyledModule styled(ModuleShape shape, const std::vector<ParallelStyle>& styles,
                    const StyleDims& dims) {
  StyledModule module{.shape = std::move(shape), .actions = {}, .parameters = {}};
  const std::string& name = module.shape.name;
  for (const ParameterShape& p : module.shape.parameters)
    module.parameters.push_back(
        {.name = name.empty() ? p.name : name + "." + p.name,
         .shape = p.shape,
         .spec = std::make_shared<const DTensorSpec>(dims.mesh(), Placements(1), p.shape)});
  check_sharded_once(module.shape, styles);
  for (const ParallelStyle& style : styles) {
    module.actions.push_back(plan_style(module.shape, style, dims));
    const std::vector<ParameterSpec>& specs = module.actions.back().parameters;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      ModelParameter& p = module.parameters[i];
      p.spec = specs[i].spec;
      p.summands = specs[i].summands;
      p.groups = specs[i].groups;
      p.unit = specs[i].unit;
    }
  }
  return module;
}

}  // namespace

int ModelParameter::sharded_dim() const {
  const Placement& placement = spec->placement(0);
  return placement.is_shard() ? placement.dim : -1;
}

StyledModel styled_model(const ModelGraphs& model, const ParallelPlan& plan, int tp) {
  const ModelModules& all = model.modules();
  StyledModel result;
  result.mesh = std::make_shared<const MeshLayout>(MeshLayout({{"tp", tp}}));
  result.block_prefix = all.block_prefix;
  const StyleDims dims(result.mesh);
  std::optional<Styles> styles;
  if (plan.tensor_parallel && tp > 1) styles.emplace(model, plan);
  const auto outside = [&](const ModuleShape& module) {
    return styled(module, styles ? styles->of(module.name) : std::vector<ParallelStyle>(), dims);
  };
  for (const ModuleShape& module : all.before) result.before.push_back(outside(module));
  for (const ModuleShape& module : all.block)
    result.block.push_back(styled(
        module, styles ? styles->of_layers(all, module.name) : std::vector<ParallelStyle>(), dims));
  for (const ModuleShape& module : all.after) result.after.push_back(outside(module));
  return result;
}

std::vector<ModelParameter> parameters_of(const std::vector<StyledModule>& modules) {
  std::vector<ModelParameter> parameters;
  for (const StyledModule& module : modules)
    parameters.insert(parameters.end(), module.parameters.begin(), module.parameters.end());
  return parameters;
}

std::vector<std::string> unmatched_styles(const ModelModules& modules, const ParallelPlan& plan) {
  if (plan.styles.empty()) return {};
  const std::vector<std::string> names = module_names(modules);
  std::vector<std::string> texts;
  for (const PatternStyles& entry : plan.styles)
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return matches_pattern(entry.pattern, name); }))
      texts.push_back(unmatched_text(entry.pattern, names));
  return texts;
}

}  // namespace meshloom::planner
