// SPDX-License-Identifier: Apache-2.0
// What a step tells of itself.
#include <gtest/gtest.h>

#include "daemon/nn/models/model_config.h"
#include "tests/unit/train/run_fixture.h"

namespace meshloom::train {
namespace {

class MetricsTest : public RunFixture {};

TEST_F(MetricsTest, MfuIsAShareOfThePeakThatTheConfigNames) {
  testing::run_ranks(2, [&](comm::ProcessGroup& world) {
    v1::RunConfig c = config();
    ExecutionContext context;
    const auto step = [&] {
      const auto run = create(world, context, c);
      run->forward_backward();
      return run->optim_step();
    };
    EXPECT_FALSE(step().has_mfu());
    c.mutable_training()->set_peak_flops(1e9);
    const v1::StepMetrics metrics = step();
    const double flops = nn::flops_per_token(nn::parse_hf_config(testing::tiny_gpt2_config()),
                                             testing::kTinyContext);
    EXPECT_NEAR(metrics.mfu(), metrics.tokens_per_second() * flops / 2e9, 1e-6 * metrics.mfu());
    EXPECT_GT(metrics.mfu(), 0.0);
  });
}

}  // namespace
}  // namespace meshloom::train
