// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_shards.h"

#include <set>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

std::string layer_name(const ModelParameters& parameters, std::int64_t layer,
                       const ParameterShape& p) {
  return fmt::format("{}.{}.{}", parameters.block_prefix, layer, p.name);
}

ShardChoice choose(const ParameterShape& p, const std::string& name, const MeshSizes& mesh,
                   const PlanChoice& plan) {
  std::vector<int> sharded;
  if (mesh.tp > 1 && p.sharding.dim >= 0) sharded.push_back(p.sharding.dim);
  return choose_shard({name, p.shape, sharded}, mesh.fsdp, plan.shards);
}

void check_names(const ModelParameters& parameters, std::int64_t layers,
                 const ShardOptions& given) {
  if (given.dims.empty()) return;
  const std::vector<std::string> names = parameter_names(parameters, layers);
  const std::set<std::string> known(names.begin(), names.end());
  for (const auto& [name, dim] : given.dims)
    check(known.contains(name), "fully_shard: there is no parameter {} to choose a dim for", name);
}

}  // namespace

ModelShards model_shards(const ModelParameters& parameters, std::int64_t layers,
                         const MeshSizes& mesh, const PlanChoice& plan) {
  ModelShards shards;
  shards.before.resize(parameters.before.size());
  shards.block.resize(parameters.block.size());
  shards.after.resize(parameters.after.size());
  check_names(parameters, layers, plan.shards);
  if (!plan.fully_shard || mesh.fsdp == 1) return shards;
  for (std::size_t i = 0; i < parameters.before.size(); ++i)
    shards.before[i] = choose(parameters.before[i], parameters.before[i].name, mesh, plan);
  for (std::size_t i = 0; i < parameters.after.size(); ++i)
    shards.after[i] = choose(parameters.after[i], parameters.after[i].name, mesh, plan);
  // Layers differ in what was chosen by hand alone.
  const std::int64_t looked_at = plan.shards.dims.empty() ? 1 : layers;
  for (std::size_t i = 0; i < parameters.block.size(); ++i) {
    const ParameterShape& p = parameters.block[i];
    for (std::int64_t layer = 0; layer < looked_at; ++layer) {
      const ShardChoice choice = choose(p, layer_name(parameters, layer, p), mesh, plan);
      if (layer > 0 && choice.dim != shards.block[i].dim)
        throw Unimplemented(
            fmt::format("estimate: layers {} and 0 shard {} differently; choices that hold for "
                        "some layers only "
                        "are not estimated",
                        layer, p.name));
      shards.block[i] = choice;
    }
  }
  return shards;
}

std::vector<std::string> parameter_names(const ModelParameters& parameters, std::int64_t layers) {
  std::vector<std::string> names;
  for (const ParameterShape& p : parameters.before) names.push_back(p.name);
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (const ParameterShape& p : parameters.block)
      names.push_back(layer_name(parameters, layer, p));
  for (const ParameterShape& p : parameters.after) names.push_back(p.name);
  return names;
}

}  // namespace meshloom::planner
