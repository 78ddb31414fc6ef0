// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "daemon/dtensor/device_mesh.h"
#include "daemon/nn/models/model.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "kernels/base/error.h"
#include "planner/estimate/styled_model.h"
#include "tests/support/thread_ranks.h"
#include "tests/unit/planner/estimate/models.h"
#include "tests/unit/planner/estimate/traced.h"

namespace meshloom::planner {
namespace {

TEST(ModelShape, CountsParametersOfKnownModels) {
  EXPECT_EQ(parameter_count(plan::TracedModel(testing::gpt2_124m()).modules()), 124'439'808);
  EXPECT_EQ(parameter_count(plan::TracedModel(testing::llama3_8b()).modules()), 8'030'261'248);
}

// By counting: of the queries of a windowed layer, and of the others.
TEST(ModelShape, SeenPositionsAreTheMeanOverQueriesAndLayers) {
  const auto counted = [](std::int64_t sequence, std::int64_t window) {
    double pairs = 0.0;
    for (std::int64_t i = 0; i < sequence; ++i)
      pairs += static_cast<double>(std::min(i + 1, window));
    return pairs / static_cast<double>(sequence);
  };
  ModelShape model = plan::make_model_shape(testing::small_qwen());
  for (const std::int64_t sequence : {50, 100, 101, 700, 2000}) {
    const double mean = (counted(sequence, 100) * 2.0 + counted(sequence, sequence) * 4.0) / 6.0;
    EXPECT_NEAR(seen_positions(model, sequence), mean, 0.51) << sequence;
  }
  model.windowed_layers = 0;
  EXPECT_DOUBLE_EQ(seen_positions(model, 700), 350.0);
  EXPECT_DOUBLE_EQ(seen_positions(plan::make_model_shape(testing::small_bert()), 30), 30.0);
  model.windowed_layers = 7;
  EXPECT_THROW(check_model_shape(model), InvalidArgument);
  model.windowed_layers = 1;
  model.window = 0;
  EXPECT_THROW(check_model_shape(model), InvalidArgument);
}

/// Plain heads, grouped ones, uneven ones, fewer key-value heads than ranks; own and tied outputs.
std::vector<nn::ModelConfig> shapes() {
  nn::ModelConfig gpt2 = testing::byte_gpt(), llama = testing::small_llama(),
                  bert = testing::small_bert();
  gpt2.num_layers = llama.num_layers = 2;
  std::vector<nn::ModelConfig> all = {gpt2, llama, bert};
  gpt2.hidden_size = 30;
  gpt2.num_heads = gpt2.num_kv_heads = 5;
  gpt2.head_dim = 6;
  gpt2.intermediate_size = 71;
  gpt2.vocab_size = 259;
  gpt2.tie_word_embeddings = false;
  llama.num_heads = 6;
  llama.num_kv_heads = 3;
  llama.head_dim = 10;
  llama.attention_bias = llama.mlp_bias = llama.tie_word_embeddings = true;
  bert.tie_word_embeddings = false;
  all.insert(all.end(), {gpt2, llama, bert, testing::small_qwen()});
  return all;
}

/// Local shapes of all parameters on every rank.
std::map<std::string, std::vector<Shape>> estimated_parts(const nn::ModelConfig& shape,
                                                          const ParallelPlan& plan, int tp) {
  const StyledModel styled = styled_model(shape, plan, tp);
  std::map<std::string, std::vector<Shape>> parts;
  const auto add = [&](const std::vector<StyledModule>& modules, const std::string& prefix) {
    for (const ModelParameter& p : parameters_of(modules))
      for (int rank = 0; rank < tp; ++rank) parts[prefix + p.name].push_back(p.local_shape(rank));
  };
  add(styled.before, "");
  for (std::int64_t i = 0; i < shape.num_layers; ++i)
    add(styled.block, fmt::format("{}.{}.", styled.block_prefix, i));
  add(styled.after, "");
  return parts;
}

// The default styles shard a described model as they shard the real one.
TEST(ModelShape, IsShardedAsTheModelIs) {
  for (const nn::ModelConfig& shape : shapes()) {
    for (const bool sequence : {false, true}) {
      for (int tp = 1; tp <= 8; ++tp) {
        const ParallelPlan plan{.tensor_parallel = true, .sequence_parallel = sequence};
        std::map<std::string, std::vector<Shape>> real_parts;
        std::mutex mutex;
        meshloom::testing::run_thread_ranks(tp, [&](comm::RankRuntime& runtime) {
          ExecutionContext context;
          const auto world = runtime.make_world_group({});
          dtensor::DeviceMesh mesh(*world, MeshLayout({{"tp", tp}}));
          const DeferParametersGuard defer(context);
          const auto model = nn::make_model(context, shape, DType::kFloat32);
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
  ModelShape model = plan::make_model_shape(testing::byte_gpt());
  model.layers = 0;
  EXPECT_THROW(check_model_shape(model), InvalidArgument);
  model = plan::make_model_shape(testing::small_llama());
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
