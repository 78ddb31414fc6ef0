// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_worker.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/unit/control/fake_run.h"
#include "tests/unit/control/ranks/rank_messages.h"

namespace meshloom::control {
namespace {

v1::RankCommand create_run(const std::string& name, const std::filesystem::path& folder) {
  v1::RankCommand command = create_job_run(name);
  command.mutable_create_run()->mutable_folders()->set_checkpoints(folder.string());
  return command;
}

TEST(RankWorker, AFailedStepSpoilsTheRunAndNoOther) {
  const test::TempFolder folder;
  FakePlan plan;
  plan.fail_at_step = 2;
  FakeFactory factory(plan, 0);
  RankWorker worker(0, factory);
  EXPECT_FALSE(worker.execute(create_run("a", folder / "a")).has_error());
  EXPECT_FALSE(worker.execute(create_run("b", folder / "b")).has_error());
  EXPECT_EQ(worker.execute(optim_step("a")).apply_gradients().output().step(), 1);
  EXPECT_EQ(worker.execute(optim_step("a")).error().info().reason(), "NUMERIC_ERROR");
  EXPECT_EQ(worker.execute(save_checkpoint("a")).error().info().reason(), "RUN_FAILED");
  EXPECT_EQ(worker.execute(optim_step("b")).apply_gradients().output().step(), 1);
  EXPECT_EQ(worker.execute(optim_step("nobody")).error().info().reason(), "RUN_NOT_FOUND");
}

TEST(RankWorker, AFailedSaveLeavesTheRunAlone) {
  const test::TempFolder folder;
  FakePlan plan;
  plan.fail_save_at_step = 1;
  FakeFactory factory(plan, 0);
  RankWorker worker(0, factory);
  worker.execute(create_run("a", folder / "a"));
  worker.execute(optim_step("a"));
  EXPECT_EQ(worker.execute(save_checkpoint("a")).error().info().reason(), "DISK_FULL");
  EXPECT_EQ(worker.execute(optim_step("a")).apply_gradients().output().step(), 2);
  EXPECT_FALSE(worker.execute(save_checkpoint("a")).has_error());
}

TEST(RankWorker, RefusesAnOlderEpoch) {
  const test::TempFolder folder;
  FakePlan plan;
  FakeFactory factory(plan, 0);
  RankWorker worker(0, factory);
  auto command = create_run("a", folder / "a");
  command.set_epoch(5);
  EXPECT_FALSE(worker.execute(command).has_error());
  auto old = optim_step("a");
  old.set_epoch(4);
  EXPECT_EQ(worker.execute(old).error().info().reason(), "EPOCH_STALE");
  EXPECT_EQ(worker.execute(old).error_scope(), v1::ERROR_SCOPE_RANKS);
}

TEST(RankWorker, ARunHasAName) {
  FakePlan plan;
  FakeFactory factory(plan, 0);
  RankWorker worker(0, factory);
  EXPECT_EQ(worker.execute(create_run("", "")).error().info().reason(), "RUN_UNNAMED");
  EXPECT_EQ(worker.execute(optim_step("")).error_scope(), v1::ERROR_SCOPE_RUN_GONE);
  EXPECT_EQ(plan.live_runs, 0);
}

}  // namespace
}  // namespace meshloom::control
