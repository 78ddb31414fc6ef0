// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/validation_progress.h"
#include "daemon/train/files/message_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

v1::RunConfig stopping(std::int64_t patience, double min_delta = 0.0) {
  v1::RunConfig config;
  auto& early = *config.mutable_training()->mutable_early_stopping();
  early.set_patience(patience);
  early.set_min_delta(min_delta);
  return config;
}

v1::RunConfig keeping(int best) {
  v1::RunConfig config;
  config.mutable_checkpoint()->set_keep_best(best);
  return config;
}

v1::ValidationMetrics validation(std::int64_t step, double loss) {
  v1::ValidationMetrics metrics;
  metrics.set_step(step);
  metrics.set_loss(loss);
  return metrics;
}

/// How many validations, one a step from 0 on, it takes to end a job; -1: it goes on.
int ends_after(const v1::RunConfig& config, const std::vector<double>& losses) {
  v1::ValidationProgress progress;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    count_validation(config, validation(static_cast<std::int64_t>(i), losses[i]), &progress);
    if (!early_stop_reason(config, progress).empty()) return static_cast<int>(i + 1);
  }
  return -1;
}

std::vector<std::int64_t> steps_of(const v1::ValidationProgress& progress) {
  std::vector<std::int64_t> steps;
  for (const v1::BestCheckpoint& best : progress.best()) steps.push_back(best.step());
  return steps;
}

TEST(ValidationProgress, EndsAfterAsManyValidationsWithoutALowerLoss) {
  EXPECT_EQ(ends_after(stopping(2), {5, 4, 3, 2, 1}), -1);
  EXPECT_EQ(ends_after(stopping(2), {5, 4, 4, 4}), 4);
  EXPECT_EQ(ends_after(stopping(2), {5, 4, 4.5, 3.9, 4, 4}), 6);
  EXPECT_EQ(ends_after(stopping(1), {5, 5}), 2);
  EXPECT_EQ(ends_after({}, {5, 6, 7, 8}), -1) << "not asked for";
}

TEST(ValidationProgress, LowerIsLowerThanTheBestByMoreThanMinDelta) {
  EXPECT_EQ(ends_after(stopping(2, 0.5), {5, 4.5, 4.6}), 3) << "by exactly min_delta is not";
  EXPECT_EQ(ends_after(stopping(3, 0.5), {5, 4.8, 4.4, 4.1, 4.0, 4.0}), 6)
      << "small steps add up: all are compared with the best";
}

TEST(ValidationProgress, WhatIsNoNumberIsNeverBetter) {
  EXPECT_EQ(ends_after(stopping(2), {kNan, kNan}), 2);
  EXPECT_EQ(ends_after(stopping(2), {kNan, 5, kNan, 4.9}), -1);
  EXPECT_EQ(ends_after(stopping(2), {5, kNan, std::numeric_limits<double>::infinity()}), 3);
}

TEST(ValidationProgress, AStepCountsOnce) {
  const v1::RunConfig config = stopping(2);
  v1::ValidationProgress progress;
  for (const std::int64_t step : {0, 5, 5, 5})
    count_validation(config, validation(step, 1.0), &progress);
  EXPECT_EQ(progress.not_better(), 1);
  EXPECT_EQ(progress.best_step(), 0);
}

TEST(ValidationProgress, TheReasonNamesTheSetAndTheBest) {
  v1::RunConfig config = stopping(1, 0.25);
  config.mutable_training()->mutable_early_stopping()->set_validation_set("books");
  v1::ValidationProgress progress;
  for (const std::int64_t step : {10, 20}) {
    v1::ValidationMetrics metrics = validation(step, 1.0 / static_cast<double>(step));
    metrics.add_sets()->set_set("code");
    metrics.add_sets()->set_set("books");
    metrics.mutable_sets(1)->set_loss(2.5);
    count_validation(config, metrics, &progress);
  }
  EXPECT_EQ(early_stop_reason(config, progress),
            "early stopping: the validation loss on books has not fallen by more than 0.25 in 1 "
            "validations, the best is 2.5000 of step 10");
}

TEST(ValidationProgress, KeepsTheLowestLosses) {
  v1::ValidationProgress progress;
  const v1::RunConfig config = keeping(2);
  EXPECT_FALSE(add_best(config, validation(0, 0.1), &progress)) << "nothing was trained";
  EXPECT_TRUE(add_best(config, validation(1, 5), &progress));
  EXPECT_TRUE(add_best(config, validation(2, 6), &progress));
  EXPECT_FALSE(add_best(config, validation(3, 6), &progress)) << "of equal ones the earlier";
  EXPECT_FALSE(add_best(config, validation(4, kNan), &progress));
  EXPECT_TRUE(add_best(config, validation(5, 4), &progress));
  EXPECT_THAT(steps_of(progress), ElementsAre(5, 1));
  EXPECT_TRUE(add_best(config, validation(1, 3), &progress)) << "validated anew";
  EXPECT_THAT(steps_of(progress), ElementsAre(1, 5));
  EXPECT_FALSE(add_best({}, validation(6, 1), &progress));
}

TEST(ValidationProgress, TheBestAreThoseOfABruteForce) {
  std::mt19937 random(7);
  for (int draw = 0; draw < 200; ++draw) {
    const int most = 1 + static_cast<int>(random() % 4);
    v1::ValidationProgress progress;
    std::vector<std::pair<double, std::int64_t>> all;
    for (std::int64_t step = 1; step <= 20; ++step) {
      const double loss = static_cast<double>(random() % 8);
      all.emplace_back(loss, step);
      add_best(keeping(most), validation(step, loss), &progress);
    }
    std::sort(all.begin(), all.end());
    std::vector<std::int64_t> expected;
    for (int i = 0; i < most; ++i) expected.push_back(all[static_cast<std::size_t>(i)].second);
    ASSERT_EQ(steps_of(progress), expected) << "draw " << draw;
  }
}

TEST(ValidationProgress, IsTheSameAsText) {
  v1::ValidationProgress progress;
  EXPECT_EQ(validation_progress_to_json(progress), "")
      << "a checkpoint without it has no part of it";
  EXPECT_EQ(validation_progress_from_json("").ByteSizeLong(), 0u);
  progress.set_step(0);
  progress.set_best_loss(1.0 / 3.0);
  progress.set_not_better(4);
  EXPECT_TRUE(add_best(keeping(3), validation(7, 0.1), &progress));
  EXPECT_EQ(
      validation_progress_from_json(validation_progress_to_json(progress)).SerializeAsString(),
      progress.SerializeAsString());
  EXPECT_THROW(validation_progress_from_json("{\"step\": []}"), DataLoss);
}

TEST(ValidationProgress, CountsAlikeWhereTheLossesAreTheSame) {
  v1::RunConfig a = stopping(2), b = stopping(5);
  EXPECT_TRUE(counts_alike(a, b));
  b.mutable_data()->set_validation_path("other.txt");
  EXPECT_FALSE(counts_alike(a, b));
  for (v1::RunConfig* config : {&a, &b}) {
    v1::ValidationSet& set = *config->mutable_validation()->add_sets();
    set.set_name("books");
    set.set_path("books.txt");
    config->mutable_training()->mutable_early_stopping()->set_validation_set("books");
  }
  EXPECT_TRUE(counts_alike(a, b)) << "of the set alone";
  b.mutable_validation()->mutable_sets(0)->set_path("more.txt");
  EXPECT_FALSE(counts_alike(a, b));
  EXPECT_FALSE(counts_alike(a, {}));
}

TEST(ValidationProgress, FollowsEditsOfItsJob) {
  v1::RunConfig before = stopping(2);
  before.mutable_checkpoint()->set_keep_best(3);
  v1::ValidationProgress counted;
  for (const int step : {1, 2, 3}) {
    count_validation(before, validation(step, step), &counted);
    EXPECT_TRUE(add_best(before, validation(step, step), &counted));
  }
  const auto follow = [&](const auto& edit, bool* dropped) {
    v1::RunConfig after = before;
    edit(after);
    v1::ValidationProgress progress = counted;
    *dropped = follow_edit(before, after, &progress);
    return progress;
  };
  bool dropped = false;
  const auto patient = follow(
      [](v1::RunConfig& after) {
        after.mutable_training()->mutable_early_stopping()->set_patience(9);
        after.mutable_checkpoint()->set_keep_best(4);
      },
      &dropped);
  EXPECT_FALSE(dropped);
  EXPECT_EQ(patient.SerializeAsString(), counted.SerializeAsString());
  const auto fewer =
      follow([](v1::RunConfig& after) { after.mutable_checkpoint()->set_keep_best(2); }, &dropped);
  EXPECT_FALSE(dropped);
  EXPECT_EQ(steps_of(fewer), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(fewer.not_better(), 2);
  const auto other =
      follow([](v1::RunConfig& after) { after.mutable_validation()->set_steps(7); }, &dropped);
  EXPECT_TRUE(dropped) << "losses of other batches";
  EXPECT_EQ(other.ByteSizeLong(), 0u);
  const auto other_set =
      follow([](v1::RunConfig& after) { after.mutable_checkpoint()->set_validation_set("books"); },
             &dropped);
  EXPECT_FALSE(dropped);
  EXPECT_EQ(other_set.best_size(), 0);
  EXPECT_EQ(other_set.not_better(), 2);
  const auto none = follow(
      [](v1::RunConfig& after) { after.mutable_training()->clear_early_stopping(); }, &dropped);
  EXPECT_EQ(none.not_better(), 0);
  EXPECT_EQ(none.best_size(), 3);
}

}  // namespace
}  // namespace meshloom::train
