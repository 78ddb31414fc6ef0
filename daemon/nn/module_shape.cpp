// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/module_shape.h"

namespace meshloom::nn {

planner::ModuleShape module_shape(const NamedModule& named) {
  Module& module = *named.module;
  const std::span<const std::string_view> inputs = module.input_names();
  planner::ModuleShape shape{.name = named.name,
                             .columns = module.column_sharding(),
                             .rows = module.row_sharding(),
                             .positionwise = module.positionwise(),
                             .inputs = {inputs.begin(), inputs.end()}};
  for (const NamedParameter& own : module.own_parameters())
    shape.parameters.push_back({own.name, own.parameter->value.shape()});
  return shape;
}

}  // namespace meshloom::nn
