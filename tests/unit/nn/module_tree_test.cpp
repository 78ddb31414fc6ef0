// SPDX-License-Identifier: Apache-2.0
// The tree of modules, hooks around forwards, and what modules say about being sharded.
#include <gtest/gtest.h>

#include <set>

#include "daemon/nn/modules/mlp.h"
#include "daemon/tensor/ops/elementwise.h"
#include "tests/support/test_context.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::nn {
namespace {

ModelConfig small_llama() {
  return parse_hf_config(R"({"architectures":["LlamaForCausalLM"],"vocab_size":40,"hidden_size":24,
      "intermediate_size":20,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":2,
      "max_position_embeddings":16,"hidden_act":"silu","rms_norm_eps":1e-6,
      "tie_word_embeddings":false})");
}

TEST(ModuleTree, NamesAllModulesParentsFirst) {
  testing::TestContext context;
  const auto model = make_model(context, small_llama(), DType::kFloat32);
  std::vector<std::string> names;
  for (const NamedModule& m : model->named_modules()) names.push_back(m.name);
  const std::set<std::string> unique(names.begin(), names.end());
  EXPECT_EQ(unique.size(), names.size());
  for (const char* expected :
       {"", "model.embed_tokens", "model.layers.1", "model.layers.1.self_attn",
        "model.layers.1.self_attn.q_proj", "model.layers.0.mlp", "lm_head"})
    EXPECT_TRUE(unique.contains(expected)) << expected;
  const auto at = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  EXPECT_EQ(at(""), 0);
  EXPECT_LT(at("model.layers.1.self_attn"), at("model.layers.1.self_attn.q_proj"));
}

TEST(ModuleTree, OwnParametersAreThoseOfTheModuleAlone) {
  testing::TestContext context;
  Mlp mlp(context, {3, 5, 2}, ActivationKind::kRelu, DType::kFloat32);
  EXPECT_TRUE(mlp.own_parameters().empty());
  for (const NamedModule& m : mlp.named_modules()) {
    const std::size_t expected = m.name.starts_with("net") ? 2 : 0;
    EXPECT_EQ(m.module->own_parameters().size(), expected) << m.name;
  }
}

TEST(Hooks, ReplaceInputsAndOutputsInOrder) {
  testing::TestContext context;
  Activation relu(context, ActivationKind::kRelu);
  relu.add_hook({[](std::span<Tensor> in) { in[0] = ops::add(in[0], 1.0); },
                 [](std::span<Tensor> out) { out[0] = ops::mul(out[0], 10.0); }});
  relu.add_hook({[](std::span<Tensor> in) { in[0] = ops::mul(in[0], 2.0); },
                 [](std::span<Tensor> out) { out[0] = ops::add(out[0], 3.0); }});
  const float values[] = {-2.0f, 0.5f};
  const Tensor y = relu(from_values(context, {2}, std::span<const float>(values)));
  // relu((x + 1) * 2) * 10 + 3
  EXPECT_EQ(y.to_vector(), (std::vector<double>{3.0, 33.0}));
}

TEST(Hooks, OfAModelSeeItsBatchAndResult) {
  testing::TestContext context;
  const auto model = make_model(context, small_llama(), DType::kFloat32);
  initialize_parameters(*model, 1);
  int inputs = 0, outputs = 0;
  model->add_hook({[&](std::span<Tensor> in) {
                     ASSERT_EQ(in.size(), model->input_names().size());
                     inputs += in[0].defined() ? 1 : 0;
                   },
                   [&](std::span<Tensor> out) { outputs += out.size() == 1 ? 1 : 0; }});
  const std::int64_t ids[] = {1, 2, 3, 4};
  Batch batch;
  batch.input_ids = from_values(context, {1, 4}, std::span<const std::int64_t>(ids));
  model->logits(batch, {});
  const auto cache = model->make_cache(8);
  model->decode(batch.input_ids, *cache);
  EXPECT_EQ(inputs, 2);
  EXPECT_EQ(outputs, 2);
}

TEST(FeatureSharding, SaysWhichDimOfEachParameter) {
  testing::TestContext context;
  const Linear plain(context, 4, 6, DType::kFloat32, {});
  const Linear swapped(context, 4, 6, DType::kFloat32, {.weight_is_in_out = true});
  EXPECT_EQ(plain.column_sharding()->parameters[0].dim, 0);
  EXPECT_EQ(plain.row_sharding()->parameters[0].dim, 1);
  EXPECT_EQ(swapped.column_sharding()->parameters[0].dim, 1);
  EXPECT_EQ(swapped.row_sharding()->parameters[0].dim, 0);
  EXPECT_EQ(plain.row_sharding()->parameters[1].dim, -1);
  EXPECT_FALSE(Activation(context, ActivationKind::kRelu).column_sharding().has_value());
}

TEST(FeatureSharding, ProjectionsOfAttentionKeepHeadsWhole) {
  testing::TestContext context;
  const auto model = make_model(context, small_llama(), DType::kFloat32);
  for (const NamedModule& m : model->named_modules()) {
    if (!m.name.ends_with("_proj") || m.name.find("self_attn") == std::string::npos) continue;
    const bool output = m.name.ends_with("o_proj");
    const auto sharding = output ? m.module->row_sharding() : m.module->column_sharding();
    const FeatureUnits& units = sharding->parameters[0].units;
    EXPECT_EQ(units.unit, 4) << m.name;
    const bool key_value = m.name.ends_with("k_proj") || m.name.ends_with("v_proj");
    EXPECT_EQ(units.bundle, key_value ? 1 : 3) << m.name;
    EXPECT_EQ(units.whole_where_few, key_value) << m.name;
  }
}

}  // namespace
}  // namespace meshloom::nn
