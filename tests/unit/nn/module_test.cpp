// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/module.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "daemon/nn/models/model.h"
#include "tests/support/test_context.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::nn {
namespace {

struct Moments {
  double mean, std;
};

Moments moments(const Tensor& tensor) {
  double sum = 0, squares = 0;
  const std::vector<double> values = tensor.to_vector();
  for (double v : values) {
    sum += v;
    squares += v * v;
  }
  const auto n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n)};
}

ModelConfig medium_gpt2() {
  return parse_hf_config(R"({"architectures":["GPT2LMHeadModel"],"vocab_size":300,"n_positions":64,
      "n_embd":96,"n_layer":4,"n_head":4})");
}

TEST(Initialize, Gpt2Recipe) {
  testing::TestContext context;
  const auto model = make_model(context, medium_gpt2(), DType::kFloat32);
  initialize_parameters(*model, 7);
  std::set<double> firsts;
  std::size_t normals = 0;
  for (const NamedParameter& p : model->named_parameters()) {
    SCOPED_TRACE(p.name);
    const Moments m = moments(p.parameter->value);
    if (p.name.ends_with("bias")) {
      EXPECT_EQ(m.mean, 0.0);
      EXPECT_EQ(m.std, 0.0);
    } else if (p.name.find("ln_") != std::string::npos) {
      EXPECT_EQ(m.mean, 1.0);
    } else {
      const double std = p.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(8.0) : 0.02;
      EXPECT_NEAR(m.std, std, 0.03 * std);
      EXPECT_NEAR(m.mean, 0.0, 0.05 * std);
      firsts.insert(p.parameter->value.to_vector()[0]);
      ++normals;
    }
  }
  EXPECT_EQ(firsts.size(), normals) << "two parameters draw the same numbers";
}

TEST(Initialize, DependsOnSeedAndNameAlone) {
  testing::TestContext one;
  ExecutionContext::Options two_threads;
  two_threads.threads = Threads{2};
  ExecutionContext other(two_threads);
  const auto a = make_model(one, medium_gpt2(), DType::kFloat32);
  const auto b = make_model(other, medium_gpt2(), DType::kFloat32);
  initialize_parameters(*a, 7);
  initialize_parameters(*b, 7);
  const auto pa = a->named_parameters(), pb = b->named_parameters();
  ASSERT_EQ(pa.size(), pb.size());
  for (std::size_t i = 0; i < pa.size(); ++i) {
    EXPECT_EQ(pa[i].name, pb[i].name);
    EXPECT_EQ(pa[i].parameter->value.to_vector(), pb[i].parameter->value.to_vector());
  }
  initialize_parameters(*b, 8);
  EXPECT_NE(pa[0].parameter->value.to_vector(), pb[0].parameter->value.to_vector());
}

TEST(Initialize, WorkingCopyIsTheRoundedMaster) {
  testing::TestContext context;
  const Init init{.kind = Init::Kind::kNormal, .std = 0.5f};
  const Tensor master = empty(context, {33, 7}, DType::kFloat32);
  const Tensor working = empty(context, {33, 7}, DType::kBFloat16);
  const Tensor rounded = empty(context, {33, 7}, DType::kBFloat16);
  initialize_tensor(master, "w", init, 5);
  initialize_tensor(working, "w", init, 5);
  copy_into(rounded, master);
  EXPECT_EQ(working.to_vector(), rounded.to_vector());
}

TEST(Initialize, PaddingRowIsZero) {
  testing::TestContext context;
  const auto model = make_model(context, meshloom::testing::tiny_bert(), DType::kFloat32);
  initialize_parameters(*model, 1);
  for (const NamedParameter& p : model->named_parameters()) {
    if (p.name != "bert.embeddings.word_embeddings.weight") continue;
    const std::vector<double> values = p.parameter->value.to_vector();
    for (int i = 0; i < 24; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.0);
    EXPECT_NE(values[24], 0.0);
  }
}

TEST(Module, NamesAreHuggingFaces) {
  testing::TestContext context;
  const auto model = make_model(context, meshloom::testing::tiny_llama(), DType::kFloat32);
  std::set<std::string> names;
  for (const NamedParameter& p : model->named_parameters())
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.bias",
        "model.layers.0.mlp.down_proj.weight", "model.layers.0.input_layernorm.weight",
        "model.norm.weight", "lm_head.weight"})
    EXPECT_TRUE(names.contains(name)) << name;
}

}  // namespace
}  // namespace meshloom::nn
