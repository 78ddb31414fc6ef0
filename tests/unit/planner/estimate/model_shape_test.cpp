// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <map>
#include <mutex>

#include "daemon/comm/mesh/thread_bootstrap.h"
#include "daemon/dtensor/device_mesh.h"
#include "daemon/nn/models/model.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "kernels/base/error.h"
#include "planner/estimate/styled_model.h"
#include "tests/unit/planner/estimate/model_configs.h"
#include "tests/unit/planner/estimate/models.h"

namespace meshloom::planner {
namespace {

/// Names and shapes.
std::vector<std::string> described(const ModelShape& model) {
  const ModelModules all = model_modules(model);
  std::vector<std::string> lines;
  const auto add = [&](const std::vector<ModuleShape>& list, std::int64_t layer) {
    for (const ModuleShape& module : list)
      for (const ParameterShape& p : module.parameters)
        lines.push_back(full_name(all, module.name, layer) + "." + p.name + to_string(p.shape));
  };
  add(all.before, -1);
  for (std::int64_t i = 0; i < model.layers; ++i) add(all.block, i);
  add(all.after, -1);
  return lines;
}

std::vector<std::string> real(const ModelShape& shape) {
  ExecutionContext context;
  const auto model = nn::make_model(context, testing::config_of(shape), DType::kFloat32);
  std::vector<std::string> lines;
  for (const auto& [name, parameter] : model->named_parameters())
    lines.push_back(name + to_string(parameter->value.shape()));
  return lines;
}

void expect_like_the_model(const ModelShape& shape) {
  EXPECT_THAT(described(shape), ::testing::UnorderedElementsAreArray(real(shape)));
  EXPECT_EQ(parameter_count(shape), nn::parameter_count(testing::config_of(shape)));
}

TEST(ModelShape, HasTheParametersOfGpt2) {
  ModelShape model = testing::byte_gpt();
  model.hidden = 30;
  model.heads = model.kv_heads = 5;
  model.head_dim = 6;
  model.intermediate = 71;
  expect_like_the_model(model);
  model.tied = false;
  expect_like_the_model(model);
}

TEST(ModelShape, HasTheParametersOfLlama) {
  ModelShape model = testing::small_llama();
  expect_like_the_model(model);
  model.attention_bias = model.attention_output_bias = model.mlp_bias = model.tied = true;
  model.head_dim = 10;
  expect_like_the_model(model);
  expect_like_the_model(testing::small_qwen());
}

TEST(ModelShape, HasTheParametersOfBert) { expect_like_the_model(testing::small_bert()); }

TEST(ModelShape, CountsParametersOfKnownModels) {
  EXPECT_EQ(parameter_count(testing::gpt2_124m()), 124'439'808);
  EXPECT_EQ(parameter_count(testing::llama3_8b()), 8'030'261'248);
}

// By counting: of the queries of a windowed layer, and of the others.
TEST(ModelShape, SeenPositionsAreTheMeanOverQueriesAndLayers) {
  const auto counted = [](std::int64_t sequence, std::int64_t window) {
    double pairs = 0.0;
    for (std::int64_t i = 0; i < sequence; ++i)
      pairs += static_cast<double>(std::min(i + 1, window));
    return pairs / static_cast<double>(sequence);
  };
  ModelShape model = testing::small_qwen();
  for (const std::int64_t sequence : {50, 100, 101, 700, 2000}) {
    const double mean = (counted(sequence, 100) * 2.0 + counted(sequence, sequence) * 4.0) / 6.0;
    EXPECT_NEAR(seen_positions(model, sequence), mean, 0.51) << sequence;
  }
  model.windowed_layers = 0;
  EXPECT_DOUBLE_EQ(seen_positions(model, 700), 350.0);
  EXPECT_DOUBLE_EQ(seen_positions(testing::small_bert(), 30), 30.0);
  model.windowed_layers = 7;
  EXPECT_THROW(check_model_shape(model), InvalidArgument);
  model.windowed_layers = 1;
  model.window = 0;
  EXPECT_THROW(check_model_shape(model), InvalidArgument);
}

/// How a module may be sharded, as text.
std::string text_of(const std::optional<FeatureSharding>& sharding) {
  if (!sharding) return "none";
  std::string text = fmt::format("in {} out {}", sharding->shards_input, sharding->shards_output);
  for (const ParameterSharding& p : sharding->parameters)
    text += fmt::format("; {} dim {} units {}x{} bundle {} whole {}", p.name, p.dim, p.units.groups,
                        p.units.unit, p.units.bundle, p.units.whole_where_few);
  return text;
}

std::string text_of(const ModuleShape& module, const std::string& name) {
  std::string text =
      fmt::format("{}: positionwise {}, inputs {}, columns {}, rows {}", name, module.positionwise,
                  fmt::join(module.inputs, " "), text_of(module.columns), text_of(module.rows));
  for (const ParameterShape& p : module.parameters) text += " | " + p.name + to_string(p.shape);
  return text;
}

/// Plain heads, grouped ones, uneven ones, fewer key-value heads than ranks; own and tied outputs.
std::vector<ModelShape> shapes() {
  ModelShape gpt2 = testing::byte_gpt(), llama = testing::small_llama(),
             bert = testing::small_bert();
  gpt2.layers = llama.layers = 2;
  std::vector<ModelShape> all = {gpt2, llama, bert};
  gpt2.hidden = 30;
  gpt2.heads = gpt2.kv_heads = 5;
  gpt2.head_dim = 6;
  gpt2.intermediate = 71;
  gpt2.vocab = 259;
  gpt2.tied = false;
  llama.heads = 6;
  llama.kv_heads = 3;
  llama.head_dim = 10;
  llama.attention_bias = llama.mlp_bias = llama.tied = true;
  bert.tied = false;
  all.insert(all.end(), {gpt2, llama, bert, testing::small_qwen()});
  return all;
}

// What estimates describe is what the modules say of themselves, module by module.
TEST(ModelShape, DescribesModulesAsTheyAre) {
  for (const ModelShape& shape : shapes()) {
    ExecutionContext context;
    const DeferParametersGuard defer(context);
    const auto model = nn::make_model(context, testing::config_of(shape), DType::kFloat32);
    std::vector<std::string> of_model, of_shape;
    for (const nn::NamedModule& module : model->named_modules())
      if (!module.name.empty())
        of_model.push_back(text_of(parallel::module_shape(module), module.name));
    const ModelModules all = model_modules(shape);
    const auto add = [&](const std::vector<ModuleShape>& list, std::int64_t layer) {
      for (const ModuleShape& module : list)
        of_shape.push_back(text_of(module, full_name(all, module.name, layer)));
    };
    add(all.before, -1);
    for (std::int64_t i = 0; i < shape.layers; ++i) add(all.block, i);
    add(all.after, -1);
    EXPECT_THAT(of_shape, ::testing::UnorderedElementsAreArray(of_model));
  }
}

/// Local shapes of all parameters on every rank.
std::map<std::string, std::vector<Shape>> estimated_parts(const ModelShape& shape,
                                                          const ParallelPlan& plan, int tp) {
  const StyledModel styled = styled_model(shape, plan, tp);
  std::map<std::string, std::vector<Shape>> parts;
  const auto add = [&](const std::vector<StyledModule>& modules, const std::string& prefix) {
    for (const ModelParameter& p : parameters_of(modules))
      for (int rank = 0; rank < tp; ++rank) parts[prefix + p.name].push_back(p.local_shape(rank));
  };
  add(styled.before, "");
  for (std::int64_t i = 0; i < shape.layers; ++i)
    add(styled.block, fmt::format("{}.{}.", styled.block_prefix, i));
  add(styled.after, "");
  return parts;
}

// The default styles shard a described model as they shard the real one.
TEST(ModelShape, IsShardedAsTheModelIs) {
  for (const ModelShape& shape : shapes()) {
    for (const bool sequence : {false, true}) {
      for (int tp = 1; tp <= 8; ++tp) {
        const ParallelPlan plan{.tensor_parallel = true, .sequence_parallel = sequence};
        std::map<std::string, std::vector<Shape>> real_parts;
        std::mutex mutex;
        comm::run_thread_ranks(tp, [&](comm::RankRuntime& runtime) {
          ExecutionContext context;
          const auto world = runtime.make_world_group({});
          dtensor::DeviceMesh mesh(*world, MeshLayout({{"tp", tp}}));
          const DeferParametersGuard defer(context);
          const auto model = nn::make_model(context, testing::config_of(shape), DType::kFloat32);
          const parallel::ParallelModel parallel(*model, &mesh, plan);
          const std::lock_guard lock(mutex);
          for (const auto& [name, parameter] : parallel.named_local_parameters()) {
            std::vector<Shape>& parts = real_parts[name];
            parts.resize(static_cast<std::size_t>(tp));
            parts[static_cast<std::size_t>(world->rank())] = parameter->value.shape();
          }
        });
        EXPECT_EQ(estimated_parts(shape, plan, tp), real_parts)
            << to_string(plan) << " on " << tp << " ranks";
      }
    }
  }
}

TEST(ModelShape, RefusesSizesThatDoNotFit) {
  ModelShape model = testing::byte_gpt();
  model.layers = 0;
  EXPECT_THROW(check_model_shape(model), InvalidArgument);
  model = testing::byte_gpt();
  model.kv_heads = 3;
  EXPECT_THROW(check_model_shape(model), InvalidArgument);
  model = testing::small_llama();
  model.kv_heads = 5;
  try {
    check_model_shape(model);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("5 kv_heads do not divide 16 heads"));
  }
}

}  // namespace
}  // namespace meshloom::planner
