// SPDX-License-Identifier: Apache-2.0
// PlannedAction: what one style is going to do with one module of a tree.
#pragma once

#include "daemon/nn/module.h"
#include "planner/plan/style.h"
#include "planner/plan/style_action.h"

namespace meshloom::parallel {

struct PlannedAction {
  nn::NamedModule module;
  planner::StyleKind kind = planner::StyleKind::kColwise;
  planner::StyleAction action;
};

}  // namespace meshloom::parallel
