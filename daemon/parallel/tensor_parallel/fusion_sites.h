// SPDX-License-Identifier: Apache-2.0
// PlannedAction: what one style is going to do with one module of a tree.
// FusionSite: linear layers whose products can take along a collective of tensor parallelism.
#pragma once

#include <string>
#include <vector>

#include "daemon/nn/module.h"
#include "planner/plan/fusion.h"
#include "planner/plan/style.h"
#include "planner/plan/style_action.h"
#include "planner/plan/style_dims.h"

namespace meshloom::parallel {

struct PlannedAction {
  nn::NamedModule module;
  planner::StyleKind kind = planner::StyleKind::kColwise;
  planner::StyleAction action;
};

struct FusionSite {
  planner::FusedProduct product = planner::FusedProduct::kGather;
  planner::FusionMode mode = planner::FusionMode::kAuto;  ///< kForce or kAuto
  /// The module at whose border the collective is: the linear layer itself, or one that gathers for
  /// several layers inside. By index of the actions, as all below.
  std::size_t border = 0;
  std::vector<std::size_t> linears;  ///< that multiply what is gathered, or the one that sums
  int dim = 0;                       ///< of the tensor that is gathered or scattered along
};

/// Returns the sites that a plan fuses, always or where the table says so. A site can be: styles
/// act along one mesh dim; a linear layer sharded by output features takes an input that is sharded
/// by a dim other than the features, itself or (all such layers directly inside) by a module that
/// gathers for them; or a layer sharded by input features gives a result that is sharded so. A
/// layer that every rank computes whole, and one with several styles, is none.
///
/// Throws InvalidArgument for a choice whose pattern names no module, for kForce where nothing can
/// be, with what is missing, and for gather_again where nothing is gathered on the way.
std::vector<FusionSite> fusion_sites(const std::vector<PlannedAction>& actions,
                                     const std::vector<std::string>& modules,
                                     const planner::StyleDims& dims,
                                     const planner::FusionPlan& plan);

}  // namespace meshloom::parallel
