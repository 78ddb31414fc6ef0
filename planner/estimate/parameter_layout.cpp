// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/parameter_layout.h"

#include "planner/shard.h"

namespace meshloom::planner {
namespace {

ParameterLayout layout_of(const ParameterShape& p, const MeshSizes& mesh, const PlanChoice& plan,
                          const std::vector<int>& coordinates) {
  ParameterLayout layout{.name = p.name, .shape = p.shape, .cut = p.cut, .local = p.shape};
  layout.placements.assign(4, Placement::replicate());
  if (plan.tensor_parallel && p.cut.dim >= 0) {
    layout.placements[3] = Placement::shard(p.cut.dim);
    layout.local = tensor_parallel_shape(p, mesh.tp, coordinates[3]);
  }
  if (plan.fully_shard) {
    layout.placements[1] = Placement::shard(0);
    layout.local[0] = shard_range(layout.local[0], mesh.fsdp, coordinates[1]).size();
  }
  return layout;
}

}  // namespace

std::vector<ParameterLayout> parameter_layouts(const ModelShape& model, const MeshSizes& mesh,
                                               const PlanChoice& plan,
                                               const std::vector<int>& coordinates) {
  const ModelParameters all = model_parameters(model);
  std::vector<ParameterLayout> layouts;
  for (const ParameterShape& p : all.before)
    layouts.push_back(layout_of(p, mesh, plan, coordinates));
  for (const ParameterShape& p : all.block) {
    ParameterLayout layout = layout_of(p, mesh, plan, coordinates);
    layout.name = all.block_prefix + ".*." + p.name;
    layout.count = static_cast<int>(model.layers);
    layouts.push_back(std::move(layout));
  }
  for (const ParameterShape& p : all.after)
    layouts.push_back(layout_of(p, mesh, plan, coordinates));
  return layouts;
}

}  // namespace meshloom::planner
