// SPDX-License-Identifier: Apache-2.0
// StyleAction: what one style means for one module, worked out before it is done.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/argument_rule.h"
#include "planner/plan/module_sharding.h"

namespace meshloom::planner {

struct StyleAction {
  std::string where;  ///< "ColwiseParallel of transformer.h.0.mlp.c_fc"
  std::vector<ParameterSpec> parameters;
  std::vector<ArgumentRule> inputs, outputs;
};

/// Throws InvalidArgument naming style and module if they do not fit: a module that cannot be
/// sharded so, layouts that are as many as neither arguments nor desired layouts, or of other
/// length than there are acting dims.
StyleAction plan_style(const ModuleShape& module, const ParallelStyle& style,
                       const StyleDims& dims);

/// Throws InvalidArgument if more than one style of a module shards or replicates its
/// parameters.
void check_sharded_once(const ModuleShape& module, const std::vector<ParallelStyle>& styles);

}  // namespace meshloom::planner
