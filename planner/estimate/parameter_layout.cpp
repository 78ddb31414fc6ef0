// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/parameter_layout.h"

#include "planner/estimate/model_shards.h"
#include "planner/shard.h"

namespace meshloom::planner {
namespace {

ParameterLayout layout_of(const ParameterShape& p, const ShardChoice& choice, const MeshSizes& mesh,
                          const PlanChoice& plan, const std::vector<int>& coordinates) {
  ParameterLayout layout{
      .name = p.name, .shape = p.shape, .sharding = p.sharding, .local = p.shape};
  layout.placements.assign(4, Placement::replicate());
  if (plan.tensor_parallel && p.sharding.dim >= 0) {
    layout.placements[3] = Placement::shard(p.sharding.dim);
    layout.local = tensor_parallel_shape(p, mesh.tp, coordinates[3]);
  }
  if (choice.dim) {
    layout.placements[1] = Placement::shard(*choice.dim);
    std::int64_t& size = layout.local[*choice.dim];
    size = shard_range(size, mesh.fsdp, coordinates[1]).size();
  }
  layout.shard_reason = choice.reason;
  return layout;
}

}  // namespace

std::vector<ParameterLayout> parameter_layouts(const ModelShape& model, const MeshSizes& mesh,
                                               const PlanChoice& plan,
                                               const std::vector<int>& coordinates) {
  const ModelParameters all = model_parameters(model, plan.tensor_groups, mesh.tp);
  const ModelShards shards = model_shards(all, model.layers, mesh, plan);
  std::vector<ParameterLayout> layouts;
  for (std::size_t i = 0; i < all.before.size(); ++i)
    layouts.push_back(layout_of(all.before[i], shards.before[i], mesh, plan, coordinates));
  for (std::size_t i = 0; i < all.block.size(); ++i) {
    ParameterLayout layout = layout_of(all.block[i], shards.block[i], mesh, plan, coordinates);
    layout.name = all.block_prefix + ".*." + all.block[i].name;
    layout.count = static_cast<int>(model.layers);
    layouts.push_back(std::move(layout));
  }
  for (std::size_t i = 0; i < all.after.size(); ++i)
    layouts.push_back(layout_of(all.after[i], shards.after[i], mesh, plan, coordinates));
  return layouts;
}

}  // namespace meshloom::planner
