// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/job/job_course.h"

#include <gtest/gtest.h>

#include <numbers>

namespace meshloom::train {
namespace {

/// 10 steps of 6 samples, whose learning rate falls from 1 by a tenth a step.
v1::RunConfig falling() {
  v1::RunConfig config;
  v1::Mesh& mesh = *config.mutable_mesh();
  mesh.set_dp(2);
  mesh.set_fsdp(1);
  mesh.set_cp(1);
  mesh.set_tp(1);
  config.mutable_training()->set_steps(10);
  config.mutable_training()->set_global_batch_size(6);
  config.mutable_training()->set_seq_len(8);
  config.mutable_optimizer()->set_lr(1.0);
  config.mutable_lr_scheduler()->set_decay_type(v1::DECAY_TYPE_LINEAR);
  config.mutable_lr_scheduler()->set_decay_ratio(1.0);
  return config;
}

StepOutput output_of(std::int64_t step, double seconds) {
  StepOutput output;
  output.values.set_step(step);
  output.values.set_loss(2.5);
  output.values.set_grad_norm(0.5);
  output.values.set_lr(0.25);
  output.step_seconds = seconds;
  return output;
}

TEST(JobCourse, StepsFollowEachOtherHoweverManyAreOnTheirWay) {
  JobCourse course(falling(), {});
  for (std::int64_t i = 0; i < 3; ++i) {
    const JobCourse::Step step = course.next();
    EXPECT_EQ(step.batch.first_sample, 6 * i);
    EXPECT_DOUBLE_EQ(step.update.lr(), 1.0 - 0.1 * static_cast<double>(i));
    EXPECT_FALSE(step.update.has_grad_clip_norm()) << "that of the config";
  }
  // Nothing is done yet: a checkpoint would begin with the first sample.
  EXPECT_EQ(course.progress({}).data_position, 0);
  course.done({40}, output_of(1, 1));
  EXPECT_EQ(course.progress({}).data_position, 6);
  EXPECT_EQ(course.progress({}).tokens, 40);
  EXPECT_EQ(course.next().batch.first_sample, 18);
}

TEST(JobCourse, GoesOnWhereACheckpointWas) {
  JobCourse course(falling(), {4, {100, 700, {}}});
  const JobCourse::Step step = course.next();
  EXPECT_EQ(step.batch.first_sample, 100);
  EXPECT_DOUBLE_EQ(step.update.lr(), 0.6);
  EXPECT_EQ(course.done({30}, output_of(5, 1)).tokens(), 730);
  EXPECT_EQ(course.progress({}).data_position, 106);
}

TEST(JobCourse, TellsBitsByByteWhereTheBytesAreKnown) {
  JobCourse course(falling(), {});
  EXPECT_FALSE(course.done({.tokens = 40, .labels = 40}, output_of(1, 1)).has_bits_per_byte());
  // Labels that do not count have no part in it.
  const v1::StepMetrics metrics =
      course.done({.tokens = 40, .labels = 30, .bytes = 90.0}, output_of(2, 1));
  EXPECT_DOUBLE_EQ(metrics.bits_per_byte(), 2.5 * 30.0 / (std::numbers::ln2 * 90.0));
}

TEST(JobCourse, TellsWhatAStepDidAndHowFastItWas) {
  v1::RunConfig config = falling();
  JobCourse course(config, {0, {}, {10.0, 0.5}, 1000.0});
  course.next();
  StepOutput output = output_of(1, 0.5);
  output.collectives.emplace_back().set_collective("all_reduce");
  const v1::StepMetrics metrics = course.done({40, 44, 80.0}, output);
  EXPECT_EQ(metrics.step(), 1);
  EXPECT_EQ(metrics.loss(), 2.5);
  EXPECT_EQ(metrics.grad_norm(), 0.5);
  EXPECT_EQ(metrics.lr(), 0.25);
  EXPECT_EQ(metrics.tokens(), 40);
  EXPECT_DOUBLE_EQ(metrics.tokens_per_second(), 80);
  // 44 tokens of 10 operations and 80 pairs of a half in half a second, of 1000 a second on two
  // ranks; what is padding among the 48 positions is no work.
  EXPECT_DOUBLE_EQ(metrics.mfu(), 0.48);
  ASSERT_EQ(metrics.collectives_size(), 1);
  EXPECT_EQ(metrics.collectives(0).collective(), "all_reduce");
}

TEST(JobCourse, AnEditHoldsForStepsThatAreNotOnTheirWay) {
  JobCourse course(falling(), {});
  course.next();
  v1::JobSettings settings;
  settings.set_steps(20);
  *settings.mutable_lr_scheduler() = falling().lr_scheduler();
  course.edit(settings);
  EXPECT_DOUBLE_EQ(course.next().update.lr(), 0.95);
}

}  // namespace
}  // namespace meshloom::train
