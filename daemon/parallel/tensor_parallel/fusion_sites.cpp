// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/fusion_sites.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "daemon/nn/modules/linear.h"
#include "kernels/base/error.h"
#include "planner/name_pattern.h"

namespace meshloom::parallel {
namespace {

using planner::ArgumentLayout;
using planner::FusedProduct;
using planner::FusionMode;
using planner::StyleKind;

constexpr const char* kWhatIsMissing =
    "linear layers whose input is gathered, or whose result is scattered, along the sequence over "
    "tp; these come with sequence_parallel";

/// The dim that a layout of one mesh dim shards, counted from the front.
std::optional<int> sharded_dim(const ArgumentLayout& layout) {
  if (!layout || !layout->front().is_shard() || layout->front().dim < 0) return std::nullopt;
  return layout->front().dim;
}

bool is_whole(const ArgumentLayout& layout) { return layout && layout->front().is_replicate(); }

class SiteFinder {
 public:
  explicit SiteFinder(const std::vector<PlannedAction>& actions) : actions_(actions) {}

  std::vector<FusionSite> find() const {
    std::vector<FusionSite> sites;
    for (std::size_t i = 0; i < actions_.size(); ++i)
      if (const auto site = site_at(i)) sites.push_back(*site);
    return sites;
  }

 private:
  std::optional<FusionSite> site_at(std::size_t i) const {
    const PlannedAction& at = actions_[i];
    if (is_sharded_linear(i, StyleKind::kRowwise)) {
      const auto dim = sharded_dim(at.action.outputs.front().desired);
      if (!dim || at.action.outputs.front().to_local) return std::nullopt;
      return FusionSite{FusedProduct::kScatter, FusionMode::kAuto, i, {i}, *dim};
    }
    // A module that gathers its one input.
    if (at.action.inputs.size() != 1 || !is_whole(at.action.inputs.front().desired))
      return std::nullopt;
    const auto dim = sharded_dim(at.action.inputs.front().given);
    if (!dim) return std::nullopt;
    if (is_sharded_linear(i, StyleKind::kColwise))
      return FusionSite{FusedProduct::kGather, FusionMode::kAuto, i, {i}, *dim};
    if (at.kind != StyleKind::kPrepareInput || at.action.inputs.front().to_local)
      return std::nullopt;
    std::vector<std::size_t> inside = layers_inside(at.module.name);
    if (inside.empty()) return std::nullopt;
    return FusionSite{FusedProduct::kGather, FusionMode::kAuto, i, std::move(inside), *dim};
  }

  /// A linear layer whose only style is this one, and of which each rank computes a part.
  bool is_sharded_linear(std::size_t i, StyleKind kind) const {
    const PlannedAction& at = actions_[i];
    if (at.kind != kind || !dynamic_cast<const nn::Linear*>(at.module.module)) return false;
    if (at.action.inputs.size() != 1 || at.action.outputs.size() != 1) return false;
    const planner::ArgumentRule& part =
        kind == StyleKind::kColwise ? at.action.outputs.front() : at.action.inputs.front();
    return part.features > 0 &&
           std::count_if(actions_.begin(), actions_.end(), [&](const PlannedAction& other) {
             return other.module.module == at.module.module;
           }) == 1;
  }

  /// The layers by output features directly inside of a module; none unless all of them take its
  /// input as it comes and are computed in parts.
  std::vector<std::size_t> layers_inside(const std::string& parent) const {
    std::vector<std::size_t> inside;
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const std::string_view name = actions_[i].module.name;
      if (actions_[i].kind != StyleKind::kColwise || name.size() <= parent.size() + 1 ||
          !name.starts_with(parent) || name[parent.size()] != '.' ||
          name.find('.', parent.size() + 1) != std::string_view::npos)
        continue;
      if (!is_sharded_linear(i, StyleKind::kColwise) ||
          !is_whole(actions_[i].action.inputs.front().given))
        return {};
      inside.push_back(i);
    }
    return inside;
  }

  const std::vector<PlannedAction>& actions_;
};

void check_choices(const std::vector<PlannedAction>& actions,
                   const std::vector<std::string>& modules, const std::vector<FusionSite>& sites,
                   const planner::FusionPlan& plan) {
  for (const planner::FusionChoice& choice : plan.choices) {
    check(std::any_of(
              modules.begin(), modules.end(),
              [&](const auto& name) { return planner::matches_pattern(choice.pattern, name); }),
          "fusion: {}", planner::unmatched_text(choice.pattern, modules));
    const bool names_site = std::any_of(sites.begin(), sites.end(), [&](const FusionSite& site) {
      return planner::matches_pattern(choice.pattern, actions[site.border].module.name);
    });
    check(choice.mode != FusionMode::kForce || names_site,
          "fusion: force of \"{}\": nothing there can be fused; expected {}", choice.pattern,
          kWhatIsMissing);
  }
  check(plan.mode != FusionMode::kForce || !sites.empty(),
        "fusion: force: nothing in the model can be fused; expected {}", kWhatIsMissing);
}

}  // namespace

std::vector<FusionSite> fusion_sites(const std::vector<PlannedAction>& actions,
                                     const std::vector<std::string>& modules,
                                     const planner::StyleDims& dims,
                                     const planner::FusionPlan& plan) {
  const std::vector<FusionSite> all =
      dims.count() == 1 ? SiteFinder(actions).find() : std::vector<FusionSite>();
  check_choices(actions, modules, all, plan);
  std::vector<FusionSite> wanted;
  bool gathers = false;
  for (FusionSite site : all) {
    site.mode = planner::fusion_mode(plan, actions[site.border].module.name);
    if (site.mode == FusionMode::kForbid) continue;
    gathers = gathers || site.product == FusedProduct::kGather;
    if (site.mode == FusionMode::kForce || planner::fusion_ever_pays(site.product))
      wanted.push_back(std::move(site));
  }
  check(!plan.gather_again || gathers,
        "fusion: gather_again, but no product may take the gathering of its input along");
  return wanted;
}

}  // namespace meshloom::parallel
