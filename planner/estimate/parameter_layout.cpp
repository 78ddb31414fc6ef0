// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/parameter_layout.h"

#include "planner/estimate/model_shards.h"
#include "planner/shard.h"

namespace meshloom::planner {
namespace {

ParameterLayout layout_of(const ModelParameter& p, const ShardChoice& choice, const MeshSizes& mesh,
                          const std::vector<int>& coordinates) {
  ParameterLayout layout{.name = p.name,
                         .shape = p.shape,
                         .groups = p.groups,
                         .unit = p.unit,
                         .local = p.local_shape(coordinates[3])};
  layout.placements.assign(4, Placement::replicate());
  layout.placements[3] = p.spec->placement(0);
  if (choice.dim) {
    layout.placements[1] = Placement::shard(*choice.dim);
    if (mesh.cp > 1) layout.placements[2] = layout.placements[1];
    std::int64_t& size = layout.local[*choice.dim];
    size = shard_range(size, mesh.parameter_shards(), coordinates[1] * mesh.cp + coordinates[2])
               .size();
  }
  layout.shard_reason = choice.reason;
  return layout;
}

}  // namespace

std::vector<ParameterLayout> parameter_layouts(const ModelGraphs& model, const MeshSizes& mesh,
                                               const ParallelPlan& plan,
                                               const std::vector<int>& coordinates) {
  const StyledModel styled = styled_model(model, plan, mesh.tp);
  const ModelShards shards = model_shards(styled, model.modules(), mesh, plan);
  std::vector<ParameterLayout> layouts;
  const auto add = [&](const std::vector<StyledModule>& modules,
                       const std::vector<ShardChoice>& choices, bool of_layers) {
    const std::vector<ModelParameter> parameters = parameters_of(modules);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      layouts.push_back(layout_of(parameters[i], choices[i], mesh, coordinates));
      if (!of_layers) continue;
      layouts.back().name = styled.block_prefix + ".*." + parameters[i].name;
      layouts.back().count = static_cast<int>(model.modules().layers);
    }
  };
  add(styled.before, shards.before, false);
  add(styled.block, shards.block, true);
  add(styled.after, shards.after, false);
  return layouts;
}

}  // namespace meshloom::planner
