// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/parallel_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kParameters = {"wte.weight", "h.0.fc.weight", "h.0.fc.bias",
                                              "h.1.fc.weight", "h.1.fc.bias"};

template <typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ParallelPlan, PatternsOfFullyShardBecomeDimsOfParameters) {
  const FullyShardPlan plan{.policy = ShardPolicy::kLargestDivisible,
                            .min_elements = 7,
                            .choices = {{"h.*.fc.weight", 1}, {"h.1.fc.weight", std::nullopt}}};
  const ShardOptions options = shard_options(plan, kParameters);
  EXPECT_EQ(options.policy, ShardPolicy::kLargestDivisible);
  EXPECT_EQ(options.min_elements, 7);
  const std::map<std::string, std::optional<int>> dims = {{"h.0.fc.weight", 1},
                                                          {"h.1.fc.weight", std::nullopt}};
  EXPECT_EQ(options.dims, dims);
  EXPECT_THAT(refusal([] {
                shard_options({.choices = {{"h.*.fx.weight", 0}}}, kParameters);
              }),
              AllOf(HasSubstr("\"h.*.fx.weight\" matches nothing"), HasSubstr("h.0.fc.weight")));
}

TEST(ParallelPlan, PatternsOfCheckpointsNameBlocks) {
  ParallelPlan plan{.checkpointing = ActivationCheckpoint::kFull};
  using enum ActivationCheckpoint;
  EXPECT_EQ(block_checkpoints(plan, kParameters),
            (std::vector<ActivationCheckpoint>{kFull, kFull}));
  plan.checkpoint_choices = {{"h.1", kSelective}};
  EXPECT_EQ(block_checkpoints(plan, kParameters),
            (std::vector<ActivationCheckpoint>{kFull, kSelective}));
  plan.checkpoint_choices = {{"h.2", kNone}};
  EXPECT_THAT(refusal([&] { block_checkpoints(plan, kParameters); }),
              HasSubstr("\"h.2\" matches nothing"));
}

TEST(ParallelPlan, OwnStylesReplaceTheDefaultOnes) {
  ParallelPlan plan{.tensor_parallel = true, .sequence_parallel = true};
  const StylePlan defaults = {{"body", {{.kind = StyleKind::kSequence}}}};
  EXPECT_EQ(styles_of(plan, defaults), defaults);
  plan.sequence_parallel = false;
  plan.styles = {{"mlp", {{.kind = StyleKind::kRowwise}}},
                 {"head", {{.kind = StyleKind::kColwise, .use_local_output = true}}}};
  const StylePlan own = styles_of(plan, defaults);
  ASSERT_EQ(own.size(), 2u);
  // Layouts are kept inside a model unless a style says otherwise.
  EXPECT_EQ(own[0].styles[0].use_local_output, false);
  EXPECT_EQ(own[1].styles[0].use_local_output, true);
}

TEST(ParallelPlan, PrintsItself) {
  ParallelPlan plan;
  EXPECT_EQ(to_string(plan), "float32");
  plan.tensor_parallel = plan.fully_shard = true;
  plan.styles = {{"mlp", {{.kind = StyleKind::kRowwise}}}};
  plan.shards.choices = {{"wte.weight", 1}};
  plan.checkpointing = ActivationCheckpoint::kSelective;
  plan.dtype = DType::kBFloat16;
  EXPECT_EQ(to_string(plan),
            "tensor_parallel with own styles, fully_shard, chosen dims, activation_checkpoint "
            "selective, bfloat16");
}

}  // namespace
}  // namespace meshloom::planner
