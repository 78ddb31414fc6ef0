// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/parallel_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/plan/plan_messages.h"
#include "kernels/base/error.h"

namespace meshloom::plan {
namespace {

using ::testing::HasSubstr;

/// "FIELD | TEXT" of what the reader throws.
std::string refusal(const v1::ParallelPlan& plan) {
  try {
    read_parallel_plan(plan, {}, "run.plan");
  } catch (const Error& error) {
    return error.metadata().at("field") + " | " + error.what();
  }
  return "accepted";
}

TEST(ReadParallelPlan, NothingGivenIsOneRanksPlan) {
  EXPECT_EQ(read_parallel_plan({}, {}, "plan"), planner::ParallelPlan());
}

TEST(ReadParallelPlan, FollowsTheMesh) {
  const planner::ParallelPlan plan = read_parallel_plan({}, {1, 2, 1, 3}, "plan");
  EXPECT_TRUE(plan.tensor_parallel);
  EXPECT_TRUE(plan.fully_shard);
}

TEST(ReadParallelPlan, ReadsEveryField) {
  v1::ParallelPlan given;
  given.set_tensor_parallel(true);
  given.set_fully_shard(true);
  given.set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_FULL);
  given.set_dtype("bfloat16");
  v1::FusionPlan& fusion = *given.mutable_fusion();
  fusion.set_mode("force");
  fusion.set_gather_again(true);
  fusion.add_choices()->set_pattern("h.1.mlp");
  fusion.mutable_choices(0)->set_mode("forbid");
  v1::FullyShardOptions& options = *given.mutable_fully_shard_options();
  options.set_policy(v1::SHARD_POLICY_LARGEST_DIVISIBLE);
  options.set_min_elements(9);
  options.set_reshard_after_forward(false);
  options.add_choices()->set_pattern("a.weight");
  v1::CheckpointChoice& choice = *given.add_activation_checkpoint_choices();
  choice.set_pattern("h.0");
  choice.set_mode(v1::ACTIVATION_CHECKPOINT_NONE);
  v1::PatternStyles& entry = *given.add_styles();
  entry.set_pattern("mlp");
  v1::ParallelStyle& style = *entry.add_styles();
  style.set_style("PrepareModuleInput");
  style.add_input_layouts("S(1)");
  style.add_desired_input_layouts("-");
  style.set_use_local_input(true);

  using planner::Placement;
  using planner::Placements;
  const planner::ParallelPlan expected{
      .tensor_parallel = true,
      .styles = {{"mlp",
                  {{.kind = planner::StyleKind::kPrepareInput,
                    .input_layouts = planner::ArgumentLayouts{Placements{Placement::shard(1)}},
                    .desired_input_layouts = planner::ArgumentLayouts{std::nullopt},
                    .use_local_input = true}}}},
      .fusion = {.mode = planner::FusionMode::kForce,
                 .choices = {{"h.1.mlp", planner::FusionMode::kForbid}},
                 .gather_again = true},
      .fully_shard = true,
      .shards = {.policy = planner::ShardPolicy::kLargestDivisible,
                 .min_elements = 9,
                 .reshard_after_forward = false,
                 .choices = {{"a.weight", std::nullopt}}},
      .checkpointing = planner::ActivationCheckpoint::kFull,
      .checkpoint_choices = {{"h.0", planner::ActivationCheckpoint::kNone}},
      .dtype = DType::kBFloat16};
  EXPECT_EQ(read_parallel_plan(given, {}, "plan"), expected);
  EXPECT_EQ(read_parallel_plan(to_message(expected), {}, "plan"), expected) << "written";
}

TEST(ReadParallelPlan, RefusalsNameTheField) {
  v1::ParallelPlan plan;
  v1::ContextParallelPlan& context_parallel = *plan.mutable_context_parallel();
  context_parallel.set_load_balancer("tail_head");
  EXPECT_THAT(refusal(plan), HasSubstr("run.plan.context_parallel.load_balancer | "));
  context_parallel.set_load_balancer("head_tail");
  context_parallel.set_rotate("round");
  EXPECT_THAT(refusal(plan), HasSubstr("run.plan.context_parallel.rotate | "));
  context_parallel.set_rotate("pull");
  context_parallel.set_ulysses_degree(2);
  EXPECT_THAT(refusal(plan), HasSubstr("run.plan.context_parallel.ulysses_degree | "));
  context_parallel.set_rotate("ulysses");
  EXPECT_THAT(refusal(plan), HasSubstr("does not divide the 1 ranks of cp"));
  plan = {};
  plan.mutable_fusion()->set_mode("always");
  EXPECT_THAT(refusal(plan),
              HasSubstr("run.plan.fusion.mode | run.plan.fusion.mode: is 'always', expected auto"));
  plan.mutable_fusion()->set_mode("auto");
  plan.mutable_fusion()->add_choices()->set_pattern("h.0");
  EXPECT_THAT(refusal(plan), HasSubstr("run.plan.fusion.choices[0].mode | "));
  plan.mutable_fusion()->mutable_choices(0)->set_mode("force");
  *plan.mutable_fusion()->add_choices() = plan.fusion().choices(0);
  EXPECT_THAT(refusal(plan), HasSubstr("run.plan.fusion.choices[1].pattern | "));
  plan = {};
  plan.add_activation_checkpoint_choices()->set_pattern("h.0");
  EXPECT_THAT(refusal(plan), HasSubstr("run.plan.activation_checkpoint_choices[0].mode | "));
  plan = {};
  plan.mutable_fully_shard_options()->set_policy(static_cast<v1::ShardPolicy>(77));
  EXPECT_THAT(refusal(plan), HasSubstr("run.plan.fully_shard_options.policy | "));
  plan = {};
  plan.add_styles()->set_pattern("mlp");
  EXPECT_THAT(refusal(plan), HasSubstr("run.plan.styles[0].styles | "));
  plan.mutable_styles(0)->add_styles()->set_style("ColwiseParallel");
  plan.mutable_styles(0)->mutable_styles(0)->add_output_layouts("S(3)");
  EXPECT_THAT(refusal(plan), HasSubstr("run.plan.styles[0].styles[0].output_layouts | "));
}

}  // namespace
}  // namespace meshloom::plan
