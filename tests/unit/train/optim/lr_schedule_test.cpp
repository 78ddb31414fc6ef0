// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

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

TEST(LrSchedule, TheFirstDifferenceIsThatOfALookAtEveryStep) {
  std::mt19937 random(5);
  const auto any = [&](int most) { return static_cast<std::int64_t>(random() % (most + 1)); };
  const auto any_rate = [&] {
    const std::int64_t total = 1 + any(40);
    return LearningRate{any(1) == 0 ? 1e-3 : 2e-3,
                        {static_cast<Decay>(any(3)), total, std::min(any(6), total),
                         0.25 * static_cast<double>(1 + any(3)), any(1) == 0 ? 0.0 : 0.1}};
  };
  int found = 0, same = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    const LearningRate a = any_rate(), b = any_rate();
    const std::int64_t begin = any(45), end = any(45);
    std::optional<std::int64_t> expected;
    for (std::int64_t i = begin; i < end && !expected; ++i)
      if (std::abs(a.at(i) - b.at(i)) > 1e-9 * std::max(a.at(i), b.at(i))) expected = i;
    EXPECT_EQ(first_difference(a, b, begin, end), expected) << trial;
    ++(expected ? found : same);
  }
  EXPECT_GT(found, 2000);
  EXPECT_GT(same, 2000);
}

TEST(LrSchedule, TheFirstDifferenceOfLongJobsIsFoundAtOnce) {
  constexpr std::int64_t kMany = std::int64_t{1} << 50;
  const LearningRate constant{1e-3, {Decay::kConstant, 10, 0, 1.0, 0.1}};
  LearningRate falling{1e-3, {Decay::kWsd, kMany, 0, 0.5, 0.1}};
  EXPECT_EQ(first_difference(constant, constant, 3, kMany), std::nullopt);
  const auto first = first_difference(constant, falling, 3, kMany);
  ASSERT_TRUE(first.has_value());
  EXPECT_GT(*first, kMany / 2);
  EXPECT_LT(*first, kMany / 2 + kMany / 1000);
  falling.peak = 0.0;
  EXPECT_EQ(first_difference(constant, falling, 3, kMany), 3);
}

}  // namespace
}  // namespace meshloom::train
