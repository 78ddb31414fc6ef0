// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/disk_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kParameters = 1'000'000;

v1::RunConfig config(std::int64_t steps, std::int64_t interval, int keep) {
  v1::RunConfig run;
  run.mutable_training()->set_steps(steps);
  run.mutable_checkpoint()->set_interval(interval);
  run.mutable_checkpoint()->set_keep_latest_k(keep);
  run.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_ADAMW);
  return run;
}

TEST(DiskNeed, CountsWhatIsThereAtOnce) {
  const auto checkpoints = [](const v1::RunConfig& run, std::int64_t limit = 0) {
    return disk_need(run, limit, kParameters).checkpoints();
  };
  EXPECT_EQ(checkpoints(config(100, 0, 2)), 1) << "the last alone";
  EXPECT_EQ(checkpoints(config(100, 10, 2)), 3) << "a new one is written before the oldest goes";
  EXPECT_EQ(checkpoints(config(100, 60, 2)), 2) << "no more than there are";
  EXPECT_EQ(checkpoints(config(100, 10, 0)), 10) << "all are kept";
  EXPECT_EQ(checkpoints(config(105, 10, 0)), 11);
  EXPECT_EQ(checkpoints(config(100, 10, 0), 35), 4) << "of a step limit";
  v1::RunConfig run = config(100, 10, 2);
  run.mutable_checkpoint()->set_last(false);
  EXPECT_EQ(checkpoints(run), 3);
  run.mutable_checkpoint()->set_interval(0);
  EXPECT_EQ(checkpoints(run), 0);
  run = config(100, 10, 2);
  run.mutable_checkpoint()->set_keep_best(3);
  run.mutable_validation()->set_interval(50);
  EXPECT_EQ(checkpoints(run), 5);
}

TEST(DiskNeed, IsOfWeightsMomentsAndTheExport) {
  v1::RunConfig run = config(100, 0, 2);
  EXPECT_EQ(disk_need(run, 0, kParameters).checkpoint_bytes(), 12 * kParameters);
  run.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
  EXPECT_EQ(disk_need(run, 0, kParameters).checkpoint_bytes(), 4 * kParameters);
  run.mutable_optimizer()->set_momentum(0.9);
  EXPECT_EQ(disk_need(run, 0, kParameters).checkpoint_bytes(), 8 * kParameters);
  run.mutable_export_()->set_hf_folder("hf");
  EXPECT_EQ(disk_need(run, 0, kParameters).needed_bytes(), 12 * kParameters);
  run.mutable_export_()->set_dtype("bfloat16");
  EXPECT_EQ(disk_need(run, 0, kParameters).needed_bytes(), 10 * kParameters);
}

TEST(DiskRoom, IsWarnedOfAndRefusedWhereNotEvenOneFits) {
  v1::DiskEstimate disk;
  disk.set_checkpoint_bytes(1000);
  disk.set_checkpoints(3);
  disk.set_needed_bytes(3000);
  std::vector<std::string> warnings;
  disk.set_free_bytes(3000);
  check_room(disk, false, &warnings);
  EXPECT_TRUE(warnings.empty());
  disk.set_free_bytes(2999);
  check_room(disk, false, &warnings);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("run.checkpoint: the job will keep 3 checkpoints"));
  disk.set_free_bytes(999);
  try {
    check_room(disk, false, &warnings);
    FAIL() << "it was taken";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "NO_SPACE");
    EXPECT_EQ(error.metadata().at("field"), "run.checkpoint");
    EXPECT_THAT(error.what(), HasSubstr("overcommit"));
  }
  check_room(disk, true, &warnings);
  EXPECT_EQ(warnings.size(), 2u) << "overcommit tries all the same";
  disk.set_checkpoints(0);
  disk.set_export_bytes(5 << 20);
  disk.set_needed_bytes(5 << 20);
  check_room(disk, false, &warnings);
  ASSERT_EQ(warnings.size(), 3u) << "none is saved: an export alone does not fit";
  EXPECT_THAT(warnings[2], HasSubstr("run.export: the export takes 5.0 MiB"));
}

TEST(DiskRoom, OfAFolderThatIsNotThereNothingIsKnown) {
  std::vector<std::string> warnings;
  EXPECT_FALSE(check_disk({}, config(10, 0, 2), {}, "/nobody/has/this", &warnings));
  EXPECT_TRUE(warnings.empty());
}

}  // namespace
}  // namespace meshloom::control
