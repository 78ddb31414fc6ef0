// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/distribute_module.h"

#include "daemon/dtensor/api/distribute_tensor.h"
#include "daemon/dtensor/api/layout_of.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {

void distribute_module(nn::Module& module, dtensor::DistributedEngine& engine,
                       const DistributeModuleOptions& options) {
  const std::vector<nn::NamedParameter> parameters = module.named_parameters();
  // All layouts first, so that what does not fit is refused before anything has moved.
  std::vector<planner::SpecPtr> layouts;
  for (const auto& [name, parameter] : parameters) {
    if (parameter->value.has_layout())
      throw FailedPrecondition(
          fmt::format("distribute_module: parameter '{}' has the layout {} already", name,
                      to_string(*parameter->value.layout()->spec)));
    std::optional<planner::Placements> placements;
    if (options.partition) placements = options.partition(name, parameter->value);
    const auto ndim = static_cast<std::size_t>(engine.context().mesh.layout()->ndim());
    layouts.push_back(dtensor::layout_for(
        engine, placements.value_or(planner::Placements(ndim)), parameter->value.shape(),
        fmt::format("distribute_module: parameter '{}'", name).c_str()));
    check(!layouts.back()->has_partial(), "distribute_module: parameter '{}': Partial in {}", name,
          *layouts.back());
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Tensor& value = parameters[i].parameter->value;
    value = dtensor::distribute_tensor(value, engine, layouts[i], options.src_data_rank);
  }
  if (options.hook.before || options.hook.after) module.add_hook(options.hook);
}

}  // namespace meshloom::parallel
