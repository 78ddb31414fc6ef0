// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/parallelize_module.h"

#include <algorithm>

#include "daemon/parallel/tensor_parallel/boundary.h"
#include "daemon/parallel/tensor_parallel/fused_products.h"
#include "daemon/parallel/tensor_parallel/fusion_sites.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/name_pattern.h"
#include "planner/plan/style_action.h"

namespace meshloom::parallel {
namespace {

using planner::ParameterSpec;
using planner::PatternStyles;
using planner::SpecPtr;
using planner::StyleAction;
using planner::StyleDims;
using planner::StylePlan;

std::vector<std::string> names_of(const std::vector<nn::NamedModule>& modules) {
  std::vector<std::string> names;
  for (const nn::NamedModule& m : modules) names.push_back(m.name);
  return names;
}

void check_options(const StyleMesh& mesh, const ParallelizeOptions& options) {
  if (!options.src_data_rank) return;
  check(*options.src_data_rank >= 0 && *options.src_data_rank < mesh.dims.parts(),
        "parallelize_module: src_data_rank {} is not a rank of a mesh of {}",
        *options.src_data_rank, mesh.dims.parts());
}

/// All is worked out, and refused if it does not fit, before anything is changed.
struct PlannedModules {
  std::vector<PlannedAction> actions;
  ParallelizeReport report;
};

void check_plain(nn::Module& module, const StyleAction& action) {
  if (action.parameters.empty()) return;
  for (const nn::NamedParameter& own : module.own_parameters())
    check(!own.parameter->value.has_layout(), "{}: {} is spread over the mesh already",
          action.where, own.name);
}

std::size_t count_sharded(const StyleAction& action) {
  return static_cast<std::size_t>(std::count_if(
      action.parameters.begin(), action.parameters.end(), [](const ParameterSpec& parameter) {
        const planner::Placements& placements = parameter.spec->placements();
        return std::any_of(placements.begin(), placements.end(),
                           [](const planner::Placement& p) { return p.is_shard(); });
      }));
}

PlannedModules plan_modules(nn::Module& root, const StyleDims& dims, const StylePlan& plan) {
  const std::vector<nn::NamedModule> modules = root.named_modules();
  const std::vector<std::string> names = names_of(modules);
  std::vector<std::string> patterns;
  for (const PatternStyles& entry : plan) {
    check(std::find(patterns.begin(), patterns.end(), entry.pattern) == patterns.end(),
          "pattern \"{}\" is twice in the plan", entry.pattern);
    patterns.push_back(entry.pattern);
  }
  PlannedModules planned;
  ParallelizeReport& report = planned.report;
  if (plan.empty()) report.warnings.emplace_back("the parallel plan is empty: nothing is changed");
  for (const std::string& pattern : patterns)
    if (std::none_of(names.begin(), names.end(),
                     [&](const auto& name) { return planner::matches_pattern(pattern, name); }))
      report.warnings.push_back(planner::unmatched_text(pattern, names));
  // All are matched before any is planned: a name that two patterns match alike is refused first.
  std::vector<std::optional<std::size_t>> best;
  for (const std::string& name : names) best.push_back(planner::best_pattern(patterns, name));
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (!best[i]) continue;
    const nn::NamedModule& m = modules[i];
    const std::vector<planner::ParallelStyle>& styles = plan[*best[i]].styles;
    std::vector<std::string> texts;
    const planner::ModuleShape shape = module_shape(m);
    for (const planner::ParallelStyle& style : styles) {
      StyleAction action = planner::plan_style(shape, style, dims);
      check_plain(*m.module, action);
      report.sharded_parameters += count_sharded(action);
      planned.actions.push_back({m, style.kind, std::move(action)});
      texts.push_back(to_string(style));
    }
    planner::check_sharded_once(shape, styles);
    report.applied.push_back(fmt::format("{}: {}", m.name, fmt::join(texts, ", ")));
  }
  return planned;
}

/// This rank's part of a whole tensor, in memory of its own.
Tensor part_of(const Tensor& whole, const planner::LocalPart& part) {
  Tensor window = whole.detach();
  for (int dim = 0; dim < part.shape().size(); ++dim) {
    std::vector<Tensor> pieces;
    for (const planner::ShardRange& range : part.ranges(dim))
      pieces.push_back(ops::slice(window, dim, range.begin, range.end));
    if (pieces.empty()) pieces.push_back(ops::slice(window, dim, 0, 0));
    window = pieces.size() == 1 ? pieces.front() : ops::cat(pieces, dim);
  }
  const Tensor copy = empty(whole.context(), part.shape(), whole.dtype());
  copy_into(copy, window);
  return copy;
}

/// Gives a parameter the layout that a style planned for it: from here on its value is a leaf whose
/// local tensor is this rank's part of the values of rank `src_data_rank` along the acting dims
/// (nullopt: of its own, without communication; then also if the value has no memory).
void distribute_parameter(nn::Parameter& parameter, const ParameterSpec& layout,
                          const StyleMesh& mesh, std::optional<int> src_data_rank) {
  Tensor& value = parameter.value;
  const SpecPtr spec = mesh.engine.intern(layout.spec);
  const NoGradGuard no_grad(value.context());
  const bool wanted = value.requires_grad();
  const planner::LocalPart part = spec->local_part(mesh.mesh().coordinates());
  Tensor local;
  if (!has_memory(value)) {
    local = deferred(value.context(), part.shape(), value.dtype());
  } else {
    Tensor whole = value.detach();
    if (src_data_rank && mesh.dims.parts() > 1) {
      whole = ops::contiguous(whole);
      mesh.mesh().group(mesh.dims.acting()).broadcast(whole.view(), *src_data_rank)->wait_host();
    }
    local = part_of(whole, part);
  }
  if (wanted) local.set_requires_grad(true);
  value = with_interned_layout(local, spec, mesh.engine);
  SpecPtr& gradient = value.layout()->grad_spec;
  if (layout.summands) {
    // Partial on every acting dim that holds the tensor whole.
    planner::Placements placements = spec->placements();
    for (const int d : mesh.dims.acting()) {
      planner::Placement& placement = placements[static_cast<std::size_t>(d)];
      if (placement.is_replicate())
        placement = planner::Placement::partial_of(planner::PartialOp::kSum);
    }
    gradient = mesh.engine.intern(planner::with_placements(*spec, std::move(placements)));
  } else {
    gradient = mesh.engine.gradient_of(spec);
  }
}

nn::Linear& linear_of(const PlannedAction& planned) {
  return dynamic_cast<nn::Linear&>(*planned.module.module);
}

/// Gives the layers of a site products that take its collective along; the border's own rules go
/// with them.
void fuse(const FusionSite& site, std::vector<PlannedAction>& actions, const StyleMesh& mesh,
          const ParallelizeOptions& options) {
  const FusedSettings settings{*options.fused, site.mode == planner::FusionMode::kAuto,
                               options.fusion.gather_again};
  if (site.product == planner::FusedProduct::kScatter) {
    nn::Linear& linear = linear_of(actions[site.border]);
    const auto scattered = std::make_shared<ScatteringLinear>(mesh, settings, linear, site.dim);
    linear.set_product([scattered](const Tensor& x, ops::Activation activation) {
      return scattered->product(x, activation);
    });
    return;
  }
  const auto gathered = std::make_shared<GatheringLinears>(mesh, settings, site.dim);
  for (std::size_t i = 0; i < site.linears.size(); ++i) {
    StyleAction& action = actions[site.linears[i]].action;
    nn::Linear& linear = linear_of(actions[site.linears[i]]);
    gathered->add(linear, Boundary(mesh, std::move(action.inputs), action.where));
    action.inputs.clear();
    linear.set_product([gathered, i](const Tensor& x, ops::Activation activation) {
      return gathered->product(i, x, activation);
    });
  }
  actions[site.border].action.inputs.clear();
}

/// The sites that are fused, over symmetric memory that is there.
std::vector<FusionSite> enabled_sites(nn::Module& root, const PlannedModules& planned,
                                      const StyleMesh& mesh, const ParallelizeOptions& options) {
  std::vector<FusionSite> sites =
      fusion_sites(planned.actions, names_of(root.named_modules()), mesh.dims, options.fusion);
  if (sites.empty()) return {};
  const std::string why_not =
      options.fused ? options.fused->enable() : "no group is given to fuse over";
  if (why_not.empty()) return sites;
  for (const FusionSite& site : sites)
    if (site.mode == planner::FusionMode::kForce)
      throw FailedPrecondition(
          fmt::format("fusion: force of {}: no symmetric memory: {}; expected ranks of one host",
                      planned.actions[site.border].module.name, why_not),
          "SYMM_MEM_UNAVAILABLE");
  return {};
}

}  // namespace

planner::ModuleShape module_shape(const nn::NamedModule& named) {
  nn::Module& module = *named.module;
  const std::span<const std::string_view> inputs = module.input_names();
  planner::ModuleShape shape{.name = named.name,
                             .columns = module.column_sharding(),
                             .rows = module.row_sharding(),
                             .positionwise = module.positionwise(),
                             .inputs = {inputs.begin(), inputs.end()}};
  for (const nn::NamedParameter& own : module.own_parameters())
    shape.parameters.push_back({own.name, own.parameter->value.shape()});
  return shape;
}

ParallelizeReport check_styles(nn::Module& root, const StyleDims& dims, const StylePlan& plan) {
  return plan_modules(root, dims, plan).report;
}

void check_fusion(nn::Module& root, const StyleDims& dims, const StylePlan& plan,
                  const planner::FusionPlan& fusion) {
  fusion_sites(plan_modules(root, dims, plan).actions, names_of(root.named_modules()), dims,
               fusion);
}

ParallelizeReport parallelize_module(nn::Module& root, const StyleMesh& mesh, const StylePlan& plan,
                                     const ParallelizeOptions& options) {
  check_options(mesh, options);
  PlannedModules planned = plan_modules(root, mesh.dims, plan);
  for (const FusionSite& site : enabled_sites(root, planned, mesh, options))
    fuse(site, planned.actions, mesh, options);
  for (const PlannedAction& planned_action : planned.actions) {
    const StyleAction& action = planned_action.action;
    nn::Module& module = *planned_action.module.module;
    const std::vector<nn::NamedParameter> own = module.own_parameters();
    for (std::size_t i = 0; i < action.parameters.size(); ++i)
      distribute_parameter(*own[i].parameter, action.parameters[i], mesh, options.src_data_rank);
    const auto before = std::make_shared<Boundary>(mesh, action.inputs, action.where);
    const auto after = std::make_shared<Boundary>(mesh, action.outputs, action.where);
    nn::ForwardHook hook;
    if (!before->empty()) hook.before = [before](std::span<Tensor> in) { before->apply(in); };
    if (!after->empty()) hook.after = [after](std::span<Tensor> out) { after->apply(out); };
    if (hook.before || hook.after) module.add_hook(std::move(hook));
  }
  return planned.report;
}

void replicate_parameters(nn::Module& root, const StyleMesh& mesh,
                          const ParallelizeOptions& options) {
  check_options(mesh, options);
  const planner::Placements whole(static_cast<std::size_t>(mesh.layout()->ndim()));
  for (const nn::NamedParameter& p : root.named_parameters()) {
    const Tensor& value = p.parameter->value;
    if (value.has_layout()) continue;
    const auto spec =
        std::make_shared<const planner::DTensorSpec>(mesh.layout(), whole, value.shape());
    distribute_parameter(*p.parameter, {p.name, spec}, mesh, options.src_data_rank);
  }
}

}  // namespace meshloom::parallel
