// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/job/watch_conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace meshloom::train {
namespace {

v1::StepMetrics a_step(std::int64_t step, double loss, double norm = 1.0, double rate = 100.0) {
  v1::StepMetrics metrics;
  metrics.set_step(step);
  metrics.set_loss(loss);
  metrics.set_grad_norm(norm);
  metrics.set_tokens_per_second(rate);
  return metrics;
}

TEST(WatchConditions, ALossIsToldWhenItComesAboveItsLimitAndAgainAfterItWasBelow) {
  v1::TrainingConfig config;
  config.add_watch()->set_loss_above(5.0);
  WatchConditions watch(config);
  std::vector<std::int64_t> told;
  const double losses[] = {4.0, 5.0, 5.5, 6.0, 4.9, 7.0, NAN, 1.0, NAN};
  for (std::size_t i = 0; i < std::size(losses); ++i)
    for (const auto& notice : watch.add(a_step(static_cast<std::int64_t>(i), losses[i]))) {
      told.push_back(notice.step());
      EXPECT_EQ(notice.condition(), "loss above 5");
      EXPECT_FALSE(notice.cancel());
    }
  EXPECT_THAT(told, ::testing::ElementsAre(2, 5, 8));
}

TEST(WatchConditions, EachIsLookedAtAlone) {
  v1::TrainingConfig config;
  config.add_watch()->set_loss_above(0.0);
  v1::WatchCondition& norm = *config.add_watch();
  norm.set_grad_norm_above(10.0);
  norm.set_cancel(true);
  WatchConditions watch(config);
  EXPECT_EQ(watch.add(a_step(1, 2.0)).size(), 1u);
  const auto told = watch.add(a_step(2, 2.0, 11.0));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].condition(), "gradient norm above 10");
  EXPECT_EQ(told[0].value(), 11.0);
  EXPECT_TRUE(told[0].cancel());
  EXPECT_TRUE(WatchConditions({}).add(a_step(1, NAN, NAN, 0.0)).empty());
}

TEST(WatchConditions, ARateIsHeldAgainstTheMedianOfTheStepsBefore) {
  v1::TrainingConfig config;
  config.add_watch()->set_tokens_per_second_below(0.5);
  WatchConditions watch(config);
  // Too few steps say nothing, and a single slow one does not move the median.
  for (int step = 1; step <= 19; ++step)
    EXPECT_TRUE(watch.add(a_step(step, 1.0, 1.0, step == 5 ? 1.0 : 100.0)).empty());
  EXPECT_TRUE(watch.add(a_step(20, 1.0, 1.0, 1.0)).empty());
  EXPECT_TRUE(watch.add(a_step(21, 1.0, 1.0, 50.0)).empty());
  const auto told = watch.add(a_step(22, 1.0, 1.0, 49.0));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].condition(), "tokens/s below 0.5 of the median, 100");
  EXPECT_EQ(told[0].value(), 49.0);
  // What stays slow becomes the median in time.
  int told_again = 0;
  for (int step = 23; step <= 300; ++step)
    told_again += static_cast<int>(watch.add(a_step(step, 1.0, 1.0, 40.0)).size());
  EXPECT_EQ(told_again, 0);
  EXPECT_TRUE(watch.add(a_step(301, 1.0, 1.0, 21.0)).empty());
}

}  // namespace
}  // namespace meshloom::train
