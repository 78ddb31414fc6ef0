// SPDX-License-Identifier: Apache-2.0
// Where the fields of a job come from.
#include "daemon/cli/jobs/job_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "daemon/cli/exit_code.h"
#include "daemon/cli/plans/plan_text.h"
#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class JobSourceTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text).string();
  }
  JobSource job() const {
    return JobSource::read(write("job.yaml",
                                 "run:\n"
                                 "  training: {steps: 5}\n"
                                 "  mesh: {dp: 2, tp: 2}\n"
                                 "  plan:\n"
                                 "    dtype: float32\n"
                                 "    sequence_parallel: true\n"
                                 "    styles:\n"
                                 "      - {pattern: a, styles: [{style: ColwiseParallel}]}\n"));
  }

  test::TempFolder folder_;
};

TEST_F(JobSourceTest, APlanFileReplacesMeshAndPlanWhole) {
  JobSource source = job();
  source.use_plan(write("plan.yaml",
                        "mesh: {tp: 4}\n"
                        "plan:\n"
                        "  styles:\n"
                        "    - {pattern: a, styles: [{style: RowwiseParallel}]}\n"));
  const v1::RunConfig& run = source.spec.run();
  EXPECT_EQ(run.mesh().dp(), 0);
  EXPECT_EQ(run.mesh().tp(), 4);
  EXPECT_FALSE(run.plan().sequence_parallel());
  ASSERT_EQ(run.plan().styles_size(), 1);
  EXPECT_EQ(run.plan().styles(0).styles(0).style(), "RowwiseParallel");
  EXPECT_EQ(run.plan().dtype(), "float32") << "stays: the file has none";
  EXPECT_EQ(run.training().steps(), 5);
  source.use_plan(write("dtype.yaml", "plan: {dtype: bfloat16}\n"));
  EXPECT_EQ(run.plan().dtype(), "bfloat16");
  EXPECT_EQ(run.mesh().tp(), 0);
}

TEST_F(JobSourceTest, ErrorsNameTheFileThatSetTheField) {
  JobSource source = job();
  EXPECT_THAT(source.place_of("run.mesh.tp"), EndsWith("job.yaml:3: "));
  source.use_plan(write("plan.yaml",
                        "mesh:\n"
                        "  tp: 3\n"
                        "plan:\n"
                        "  styles:\n"
                        "    - pattern: a\n"));
  EXPECT_THAT(source.place_of("run.mesh.tp"), EndsWith("plan.yaml:2: "));
  EXPECT_THAT(source.place_of("run.plan.styles[0].pattern"), EndsWith("plan.yaml:5: "));
  EXPECT_THAT(source.place_of("run.plan.fully_shard_options.choices"), EndsWith("plan.yaml:3: "));
  EXPECT_THAT(source.place_of("run.plan.dtype"), EndsWith("job.yaml:5: "));
  EXPECT_THAT(source.place_of("run.training.steps"), EndsWith("job.yaml:2: "));
  EXPECT_THAT(source.place_of("name"), EndsWith("job.yaml: "));
  JobSource made;
  EXPECT_EQ(made.place_of("run.mesh.tp"), "");
  made.use_plan(write("mesh.yaml", "mesh: {tp: 3}\n"));
  EXPECT_THAT(made.place_of("run.mesh.tp"), EndsWith("mesh.yaml:1: "));
  EXPECT_EQ(made.place_of("run.training.steps"), "");
}

TEST_F(JobSourceTest, AWrongFileIsNamed) {
  try {
    job().use_plan(write("bad.yaml", "\nmesh: {tq: 2}\n"));
    ADD_FAILURE() << "accepted";
  } catch (const CliError& error) {
    EXPECT_EQ(error.code(), kUsage);
    EXPECT_THAT(error.what(), HasSubstr("bad.yaml:2"));
  }
}

TEST(PlanText, SaysWhatAPlanSays) {
  v1::ParallelPlan plan;
  plan.set_dtype("float32");
  EXPECT_EQ(plan_text(plan), "float32");
  plan.set_tensor_parallel(true);
  plan.set_sequence_parallel(true);
  plan.set_fully_shard(true);
  plan.mutable_fully_shard_options()->set_reshard_after_forward(true);
  plan.set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_FULL);
  EXPECT_EQ(plan_text(plan),
            "tensor_parallel, sequence_parallel, fully_shard, activation_checkpoint full, float32");
  plan.clear_activation_checkpoint();
  plan.mutable_fusion()->set_mode("force");
  plan.mutable_fusion()->set_gather_again(true);
  plan.mutable_fusion()->add_choices()->set_pattern("h.*.mlp");
  plan.mutable_fusion()->mutable_choices(0)->set_mode("forbid");
  EXPECT_EQ(plan_text(plan),
            "tensor_parallel, sequence_parallel, fusion force, forbid of h.*.mlp, gather again, "
            "fully_shard, float32");
  plan.clear_fusion();
  plan.set_activation_checkpoint(v1::ACTIVATION_CHECKPOINT_FULL);
  auto& options = *plan.mutable_fully_shard_options();
  options.set_reshard_after_forward(false);
  options.set_policy(v1::SHARD_POLICY_LARGEST_DIVISIBLE);
  options.set_min_elements(100);
  options.add_choices()->set_pattern("lm_head.weight");
  auto& choice = *options.add_choices();
  choice.set_pattern("wte.weight");
  choice.set_dim(1);
  auto& block = *plan.add_activation_checkpoint_choices();
  block.set_pattern("h.[0-1]");
  block.set_mode(v1::ACTIVATION_CHECKPOINT_NONE);
  plan.clear_tensor_parallel();
  plan.clear_sequence_parallel();
  plan.add_styles()->set_pattern("h.*.attn");
  plan.add_styles()->set_pattern("h.*.mlp");
  EXPECT_EQ(
      plan_text(plan),
      "fully_shard without reshard largest_divisible from 100 elements (lm_head.weight whole; "
      "wte.weight dim 1), activation_checkpoint full but none of h.[0-1], float32, own styles "
      "for h.*.attn and h.*.mlp");
}

}  // namespace
}  // namespace meshloom::cli
