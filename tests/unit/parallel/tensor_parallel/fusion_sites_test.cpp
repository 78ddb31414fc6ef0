// SPDX-License-Identifier: Apache-2.0
// Which products of the models can take their collectives along, and what is said where none can.
#include "daemon/parallel/tensor_parallel/fusion_sites.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/nn/models/default_styles.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "kernels/base/error.h"
#include "tests/support/test_context.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::parallel {
namespace {

using planner::FusionMode;
using planner::FusionPlan;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Asked {
  nn::ModelConfig config;
  FusionPlan fusion;
  bool sequence = true;
  int ranks = 2;
};

/// What is refused, or "accepted".
std::string refusal(const Asked& asked) {
  testing::TestContext context;
  const DeferParametersGuard defer(context);
  const auto model = nn::make_model(context, asked.config, DType::kFloat32);
  const auto mesh =
      std::make_shared<const planner::MeshLayout>(planner::MeshLayout({{"tp", asked.ranks}}));
  try {
    check_fusion(*model, mesh, nn::default_styles(asked.config.architecture, asked.sequence),
                 asked.fusion);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

FusionPlan forced(const std::string& pattern) {
  return {.choices = {{pattern, FusionMode::kForce}}};
}

TEST(FusionSites, AreInEveryModelWithSequenceParallelism) {
  for (const auto& config : {testing::tiny_gpt2(), testing::tiny_llama(), testing::tiny_bert()}) {
    EXPECT_EQ(refusal({config, {.mode = FusionMode::kForce, .gather_again = true}}), "accepted");
    EXPECT_THAT(refusal({config, {.mode = FusionMode::kForce}, false}),
                AllOf(HasSubstr("fusion: force: nothing"), HasSubstr("sequence_parallel")));
    EXPECT_EQ(refusal({config, {.mode = FusionMode::kForbid}, false}), "accepted");
  }
}

TEST(FusionSites, ChoicesNameThem) {
  const nn::ModelConfig gpt2 = testing::tiny_gpt2(), llama = testing::tiny_llama();
  EXPECT_EQ(refusal({gpt2, forced("transformer.h.*.mlp.c_*")}), "accepted");
  EXPECT_EQ(refusal({llama, forced("model.layers.0.self_attn")}), "accepted");
  EXPECT_EQ(refusal({llama, forced("model.layers.*.mlp.down_proj")}), "accepted");
  EXPECT_THAT(refusal({gpt2, forced("transformer.h.*.mlp.c_fd")}),
              AllOf(HasSubstr("matches nothing"), HasSubstr("transformer.h.0.mlp.c_fc")));
  EXPECT_THAT(refusal({gpt2, forced("transformer.h.*.ln_1")}),
              HasSubstr("force of \"transformer.h.*.ln_1\": nothing there can be fused"));
  // The gathering is the attention's, for its three layers at once.
  EXPECT_THAT(refusal({llama, forced("model.layers.*.self_attn.q_proj")}),
              HasSubstr("nothing there can be fused"));
}

// Two heads for keys and values on four ranks: every rank has them whole, from the input gathered
// once for all.
TEST(FusionSites, AreNoneWhereSomeLayersAreWhole) {
  nn::ModelConfig config = testing::tiny_llama();
  ASSERT_LT(config.num_kv_heads, 4);
  EXPECT_THAT(refusal({config, forced("model.layers.*.self_attn"), true, 4}),
              HasSubstr("nothing there can be fused"));
  EXPECT_EQ(refusal({config, forced("model.layers.*.mlp"), true, 4}), "accepted");
}

TEST(FusionSites, GatherAgainNeedsSomethingThatGathers) {
  EXPECT_THAT(refusal({testing::tiny_gpt2(), {.mode = FusionMode::kForbid, .gather_again = true}}),
              HasSubstr("gather_again"));
}

}  // namespace
}  // namespace meshloom::parallel
