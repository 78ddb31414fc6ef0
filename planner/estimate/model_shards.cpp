// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_shards.h"

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

ShardChoice choose(const ModelParameter& p, const std::string& name, int ranks,
                   const ShardOptions& options) {
  std::vector<int> sharded;
  if (p.sharded_dim() >= 0) sharded.push_back(p.sharded_dim());
  return choose_shard({name, p.shape, sharded}, ranks, options);
}

ShardOptions options_of(const ModelModules& modules, const ParallelPlan& plan) {
  if (plan.shards.choices.empty()) return shard_options(plan.shards, {});
  try {
    return shard_options(plan.shards, parameter_names(modules));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("plan.fully_shard_options.choices: {}", error.what()));
  }
}

}  // namespace

ModelShards model_shards(const StyledModel& styled, const ModelModules& modules,
                         const MeshSizes& mesh, const ParallelPlan& plan) {
  const std::vector<ModelParameter> before = parameters_of(styled.before),
                                    block = parameters_of(styled.block),
                                    after = parameters_of(styled.after);
  ModelShards shards;
  shards.before.resize(before.size());
  shards.block.resize(block.size());
  shards.after.resize(after.size());
  const ShardOptions options = options_of(modules, plan);
  if (!plan.fully_shard || mesh.fsdp == 1) return shards;
  for (std::size_t i = 0; i < before.size(); ++i)
    shards.before[i] = choose(before[i], before[i].name, mesh.parameter_shards(), options);
  for (std::size_t i = 0; i < after.size(); ++i)
    shards.after[i] = choose(after[i], after[i].name, mesh.parameter_shards(), options);
  // Layers differ in what was chosen by hand alone.
  const std::int64_t looked_at = options.dims.empty() ? 1 : modules.layers;
  for (std::size_t i = 0; i < block.size(); ++i) {
    for (std::int64_t layer = 0; layer < looked_at; ++layer) {
      const std::string name = fmt::format("{}.{}.{}", styled.block_prefix, layer, block[i].name);
      const ShardChoice choice = choose(block[i], name, mesh.parameter_shards(), options);
      if (layer > 0 && choice.dim != shards.block[i].dim)
        throw Unimplemented(
            fmt::format("estimate: layers {} and 0 shard {} differently; choices that hold for "
                        "some layers only are not estimated",
                        layer, block[i].name));
      shards.block[i] = choice;
    }
  }
  return shards;
}

}  // namespace meshloom::planner
