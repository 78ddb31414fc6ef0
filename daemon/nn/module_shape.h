// SPDX-License-Identifier: Apache-2.0
// A module as the planner sees it.
#pragma once

#include "daemon/nn/module.h"
#include "planner/plan/module_shape.h"

namespace meshloom::nn {

/// Returns what styles have to know of a module.
planner::ModuleShape module_shape(const NamedModule& module);

}  // namespace meshloom::nn
