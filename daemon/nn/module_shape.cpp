// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/module_shape.h"

namespace meshloom::nn {

planner::ModuleShape module_shape(const NamedModule& named) {
  Module& module = *named.module;
  planner::ModuleShape shape{.name = named.name,
                             .columns = module.column_sharding(),
                             .rows = module.row_sharding(),
                             .positionwise = module.positionwise(),
                             .inputs = module.input_names()};
  for (const NamedParameter& own : module.own_parameters())
    shape.parameters.push_back({own.name, own.parameter->value.shape()});
  return shape;
}

}  // namespace meshloom::nn
