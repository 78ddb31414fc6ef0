// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace meshloom::train {
namespace {

using Decay = LrSchedule::Decay;

TEST(LrSchedule, WarmsUpFromOneOverWToOne) {
  const LrSchedule schedule = {Decay::kConstant, 100, 4, 1.0, 0.1};
  const double expected[] = {0.25, 0.5, 0.75, 1.0, 1.0};
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(schedule.factor(i), expected[i]);
  EXPECT_DOUBLE_EQ(schedule.factor(99), 1.0);
}

TEST(LrSchedule, LinearFallsToJustAboveTheMinimum) {
  const LrSchedule schedule = {Decay::kLinear, 12, 2, 1.0, 0.1};
  EXPECT_DOUBLE_EQ(schedule.factor(2), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(7), 0.1 + 0.9 * 0.5);
  EXPECT_DOUBLE_EQ(schedule.factor(11), 0.1 + 0.9 * 0.1);
  EXPECT_DOUBLE_EQ(schedule.factor(12), 0.1);
  EXPECT_DOUBLE_EQ(schedule.factor(1000), 0.1);
}

TEST(LrSchedule, CosineFollowsItsFormula) {
  const LrSchedule schedule = {Decay::kCosine, 200, 20, 1.0, 0.25};
  for (std::int64_t i = 20; i < 200; ++i) {
    const double p = static_cast<double>(i - 20) / 180.0;
    EXPECT_NEAR(schedule.factor(i), 0.25 + 0.75 * (1 + std::cos(3.14159265358979 * p)) / 2, 1e-12);
  }
  EXPECT_NEAR(schedule.factor(110), 0.625, 1e-12);
}

TEST(LrSchedule, WsdStaysAndThenFalls) {
  const LrSchedule schedule = {Decay::kWsd, 100, 10, 0.2, 0.0};
  EXPECT_EQ(schedule.decay_steps(), 20);
  EXPECT_DOUBLE_EQ(schedule.factor(10), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(80), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(90), 0.5);
  EXPECT_NEAR(schedule.factor(99), 0.05, 1e-12);
}

TEST(LrSchedule, DecayNeverReachesIntoTheWarmup) {
  const LrSchedule schedule = {Decay::kLinear, 10, 8, 0.9, 0.0};
  EXPECT_EQ(schedule.decay_steps(), 2);
  EXPECT_DOUBLE_EQ(schedule.factor(7), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(8), 1.0);
  EXPECT_DOUBLE_EQ(schedule.factor(9), 0.5);
  const LrSchedule all_warmup = {Decay::kCosine, 10, 10, 1.0, 0.0};
  EXPECT_EQ(all_warmup.decay_steps(), 0);
  EXPECT_DOUBLE_EQ(all_warmup.factor(9), 1.0);
}

TEST(LrSchedule, ReadsTheConfig) {
  v1::LrSchedulerConfig config;
  config.set_decay_type(v1::DECAY_TYPE_WSD);
  config.set_warmup_steps(3);
  config.set_decay_ratio(0.5);
  config.set_min_lr_factor(0.2);
  const LrSchedule schedule = make_lr_schedule(config, 10);
  EXPECT_EQ(schedule.decay, Decay::kWsd);
  EXPECT_EQ(schedule.warmup_steps, 3);
  EXPECT_EQ(schedule.decay_steps(), 5);
  EXPECT_DOUBLE_EQ(schedule.min_factor, 0.2);
}

}  // namespace
}  // namespace meshloom::train
