// SPDX-License-Identifier: Apache-2.0
// StyleAction: what one style means for one module, worked out before it is done.
#pragma once

#include <string>
#include <vector>

#include "daemon/nn/module.h"
#include "daemon/parallel/tensor_parallel/boundary.h"
#include "daemon/parallel/tensor_parallel/module_sharding.h"

namespace meshloom::parallel {

struct StyleAction {
  nn::Module* module;
  std::string where;  ///< "ColwiseParallel of transformer.h.0.mlp.c_fc"
  std::vector<ParameterLayout> parameters;
  std::vector<ArgumentRule> inputs, outputs;
};

/// Throws InvalidArgument naming style and module where they do not fit: a module that cannot be
/// sharded so, layouts that are as many as neither arguments nor desired layouts, or of other
/// length than there are acting dims.
StyleAction plan_style(const nn::NamedModule& module, const ParallelStyle& style,
                       const StyleDims& dims);

/// Throws InvalidArgument where more than one style of a module shards or replicates its
/// parameters.
void check_sharded_once(const nn::NamedModule& module, const std::vector<ParallelStyle>& styles);

/// Distributes the parameters and adds the hook.
void apply_action(const StyleAction& action, const StyleMesh& mesh,
                  std::optional<int> src_data_rank);

}  // namespace meshloom::parallel
