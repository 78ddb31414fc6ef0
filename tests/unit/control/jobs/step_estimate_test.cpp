// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/step_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/nn/models/presets.h"
#include "daemon/plan/job_memory.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StepEstimateTest : public ::testing::Test {
 protected:
  StepEstimateTest() {
    run_.mutable_mesh()->set_dp(2);
    run_.mutable_plan()->set_dtype("float32");
    run_.mutable_training()->set_steps(1);
    run_.mutable_training()->set_global_batch_size(16);
    run_.mutable_training()->set_micro_batch_size(8);
    run_.mutable_training()->set_seq_len(128);
    run_.set_device("cpu");
  }
  v1::PlanEstimate estimate(const MemoryShares& shares) {
    warnings_.clear();
    return estimate_step(run_, model_, shares, &warnings_);
  }

  const nn::ModelConfig model_ = nn::preset_config("gpt2_124m");
  v1::RunConfig run_;
  std::vector<std::string> warnings_;
};

TEST_F(StepEstimateTest, OnTheCpuItIsThePlansBesideTheHostsShare) {
  const v1::PlanEstimate roomy = estimate({std::int64_t{1} << 40, std::int64_t{1} << 40});
  EXPECT_EQ(roomy.ranks(), 2);
  EXPECT_TRUE(roomy.has_seconds());
  EXPECT_EQ(roomy.memory_limit_bytes(), std::int64_t{1} << 40);
  EXPECT_TRUE(roomy.fits());
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_FALSE(estimate({1 << 20, 1 << 20}).fits());
}

TEST_F(StepEstimateTest, OnADeviceTheMemoryIsTheDevicesAndTheHostMustHaveRoomToo) {
  run_.set_device("cuda");
  const std::int64_t on_device = plan::on_device(plan::estimate_job_memory(run_, model_)).total();
  const v1::PlanEstimate fits = estimate({on_device, std::int64_t{1} << 40});
  EXPECT_EQ(fits.memory().total(), on_device);
  EXPECT_EQ(fits.memory_limit_bytes(), on_device);
  EXPECT_TRUE(fits.fits());
  EXPECT_FALSE(fits.has_seconds()) << "rates are those of the CPU";
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("run.device: there is no estimate")));
  EXPECT_FALSE(estimate({on_device - 1, std::int64_t{1} << 40}).fits());
  EXPECT_FALSE(estimate({on_device, 1}).fits()) << "what lies beside the device";
  EXPECT_TRUE(estimate({}).fits()) << "nothing is known";
}

}  // namespace
}  // namespace meshloom::control
