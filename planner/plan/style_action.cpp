// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/style_action.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

/// What every planning function is told.
struct Planning {
  const ModuleShape& module;
  const ParallelStyle& style;
  const StyleDims& dims;
  std::string where;

  /// Along all acting dims.
  Placements everywhere(Placement placement) const {
    return Placements(static_cast<std::size_t>(dims.count()), placement);
  }
  Placements whole() const { return everywhere(Placement::replicate()); }
  Placements features() const { return everywhere(Placement::shard(-1)); }
};

ArgumentLayout checked(const Planning& p, const ArgumentLayout& layout) {
  if (layout)
    check(static_cast<int>(layout->size()) == p.dims.count(),
          "{}: the layout {} has {} placements for a mesh of {} dims", p.where, to_string(*layout),
          layout->size(), p.dims.count());
  return layout;
}

/// Layouts that were given, or the style's own for the first argument.
ArgumentLayouts given_or(const Planning& p, const std::optional<ArgumentLayouts>& layouts,
                         Placements own) {
  if (!layouts) return {std::move(own)};
  ArgumentLayouts result;
  for (const ArgumentLayout& layout : *layouts) result.push_back(checked(p, layout));
  return result;
}

void check_arguments(const Planning& p, std::size_t count, std::size_t have, const char* what) {
  check(count <= have, "{}: {} layouts for a module with {} {}", p.where, count, have, what);
}

/// A style that shards the module: its one input is brought into `wanted`, its output is taken to
/// be `made` and brought into the output layouts.
StyleAction plan_sharded(const Planning& p) {
  const bool columns = p.style.kind == StyleKind::kColwise;
  const std::optional<FeatureSharding>& sharding = columns ? p.module.columns : p.module.rows;
  check(sharding.has_value(), "{}: the module cannot be sharded by {}", p.where,
        columns ? "output features" : "input features");
  check(!p.style.desired_input_layouts && !p.style.desired_output_layouts &&
            p.style.input_kwarg_layouts.empty() && p.style.desired_input_kwarg_layouts.empty(),
        "{}: desired layouts and layouts by name belong to the Prepare styles", p.where);
  ModuleSharding parts = shard_module(p.module, *sharding, p.dims, p.where);
  StyleAction action{p.where, std::move(parts.parameters), {}, {}};
  const ShardedFeatures& features = parts.features;
  const bool shards_input = sharding->shards_input && !features.whole;
  const bool shards_output = sharding->shards_output && !features.whole;

  const Placements wanted = shards_input ? p.features() : p.whole();
  const ArgumentLayouts given = given_or(p, p.style.input_layouts, wanted);
  check_arguments(p, given.size(), p.module.inputs.size(), "inputs");
  for (std::size_t i = 0; i < given.size(); ++i) {
    ArgumentRule rule{.given = given[i], .partial_grad = columns && !features.whole};
    if (i == 0) rule.desired = wanted;
    if (shards_input) {
      rule.features = features.count;
      rule.feature_orders = features.orders;
    }
    action.inputs.push_back(std::move(rule));
  }

  const Placements made = shards_output ? p.features() : p.whole();
  for (const ArgumentLayout& layout : given_or(p, p.style.output_layouts, made)) {
    ArgumentRule rule{.desired = layout, .to_local = p.style.use_local_output.value_or(true)};
    if (shards_output) {
      rule.features = features.count;
      rule.feature_orders = features.orders;
    }
    action.outputs.push_back(std::move(rule));
  }
  return action;
}

StyleAction plan_sequence(const Planning& p) {
  check(p.module.positionwise, "{}: the module mixes positions, its sequence cannot be sharded",
        p.where);
  StyleAction action{p.where, {}, {}, {}};
  for (const ParameterShape& own : p.module.parameters)
    action.parameters.push_back(
        {own.name,
         std::make_shared<const DTensorSpec>(p.dims.mesh(), p.dims.on_mesh(p.whole()), own.shape),
         true});
  const Placements sequence =
      p.everywhere(Placement::shard(static_cast<int>(p.style.sequence_dim)));
  const std::size_t count = p.module.inputs.size();
  ArgumentLayouts given(count, sequence);
  if (p.style.input_layouts) given = given_or(p, p.style.input_layouts, sequence);
  check_arguments(p, given.size(), count, "inputs");
  for (const ArgumentLayout& layout : given)
    action.inputs.push_back({.given = layout, .desired = sequence});
  const ArgumentLayouts outputs =
      p.style.output_layouts ? given_or(p, p.style.output_layouts, sequence) : ArgumentLayouts{};
  for (const ArgumentLayout& layout : outputs)
    action.outputs.push_back(
        {.desired = layout, .to_local = p.style.use_local_output.value_or(false)});
  if (outputs.empty() && p.style.use_local_output.value_or(false))
    action.outputs.push_back({.to_local = true});
  return action;
}

/// One rule per argument from what it is and what it is to be.
std::vector<ArgumentRule> prepare(const Planning& p, const ArgumentLayouts& given,
                                  const ArgumentLayouts& desired, const char* what, bool to_local) {
  check(given.size() == desired.size(),
        "{}: {} {} layouts, but {} desired layouts; one of each is needed for an argument", p.where,
        given.size(), what, desired.size());
  std::vector<ArgumentRule> rules;
  for (std::size_t i = 0; i < given.size(); ++i) {
    ArgumentRule rule{.given = checked(p, given[i]), .desired = checked(p, desired[i])};
    rule.to_local = to_local && (rule.given || rule.desired);
    rule.partial_grad = true;
    rules.push_back(std::move(rule));
  }
  return rules;
}

void add_named(const Planning& p, std::vector<ArgumentRule>& rules, bool to_local) {
  const auto& given = p.style.input_kwarg_layouts;
  const auto& desired = p.style.desired_input_kwarg_layouts;
  check(given.size() == desired.size() &&
            std::equal(given.begin(), given.end(), desired.begin(),
                       [](const auto& a, const auto& b) { return a.first == b.first; }),
        "{}: layouts and desired layouts are given for different names of inputs", p.where);
  const std::vector<std::string> names = p.module.inputs;
  for (const auto& [name, layout] : given) {
    const auto at = std::find(names.begin(), names.end(), name);
    check(at != names.end(), "{}: a layout for input \"{}\", but the inputs are {}", p.where, name,
          fmt::join(names, ", "));
    const auto index = static_cast<std::size_t>(at - names.begin());
    if (rules.size() <= index) rules.resize(index + 1);
    check(!rules[index].given && !rules[index].desired,
          "{}: input \"{}\" has a layout by position and by name", p.where, name);
    rules[index] = prepare(p, {layout}, {desired.at(name)}, "input", to_local).front();
  }
}

StyleAction plan_prepare(const Planning& p) {
  StyleAction action{p.where, {}, {}, {}};
  const ParallelStyle& s = p.style;
  const ArgumentLayouts none;
  if (s.kind != StyleKind::kPrepareOutput) {
    const bool to_local = s.kind == StyleKind::kPrepareInputOutput
                              ? s.use_local_input.value_or(false)
                              : s.use_local_input.value_or(s.use_local_output.value_or(false));
    action.inputs = prepare(p, s.input_layouts.value_or(none),
                            s.desired_input_layouts.value_or(none), "input", to_local);
    add_named(p, action.inputs, to_local);
    check_arguments(p, action.inputs.size(), p.module.inputs.size(), "inputs");
    check(!action.inputs.empty(), "{}: no input layouts are given", p.where);
  }
  if (s.kind != StyleKind::kPrepareInput) {
    action.outputs =
        prepare(p, s.output_layouts.value_or(none), s.desired_output_layouts.value_or(none),
                "output", s.use_local_output.value_or(true));
    check(!action.outputs.empty(), "{}: no output layouts are given", p.where);
  }
  return action;
}

std::string place_of(const ModuleShape& module, StyleKind kind) {
  return fmt::format("{} of {}", style_name(kind),
                     module.name.empty() ? "the module itself" : module.name);
}

}  // namespace

StyleAction plan_style(const ModuleShape& module, const ParallelStyle& style,
                       const StyleDims& dims) {
  const Planning p{module, style, dims, place_of(module, style.kind)};
  switch (style.kind) {
    case StyleKind::kColwise:
    case StyleKind::kRowwise: return plan_sharded(p);
    case StyleKind::kSequence: return plan_sequence(p);
    default: return plan_prepare(p);
  }
}

void check_sharded_once(const ModuleShape& module, const std::vector<ParallelStyle>& styles) {
  const ParallelStyle* first = nullptr;
  for (const ParallelStyle& style : styles) {
    const bool takes_parameters = style.kind == StyleKind::kColwise ||
                                  style.kind == StyleKind::kRowwise ||
                                  style.kind == StyleKind::kSequence;
    if (!takes_parameters) continue;
    check(!first, "{}: {} has spread its parameters already", place_of(module, style.kind),
          first ? style_name(first->kind) : "");
    first = &style;
  }
}

}  // namespace meshloom::planner
