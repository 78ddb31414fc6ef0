// SPDX-License-Identifier: Apache-2.0
// What the command stream does when one rank has failed alone.
#include <gtest/gtest.h>

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/control/ranks/executor.h"
#include "daemon/control/ranks/rank_worker.h"
#include "kernels/base/error.h"
#include "tests/unit/control/fake_run.h"
#include "tests/unit/control/ranks/failed_ranks.h"
#include "tests/unit/control/ranks/rank_messages.h"

namespace meshloom::control {
namespace {

class RecoveryRecorder final : public CommandSink {
 public:
  bool send(CommandPtr command) override {
    commands.push_back(*command);
    return true;
  }
  std::vector<v1::RankCommand> commands;
};

TEST(Recovery, TheExecutorTellsAllRanksOncePerEpoch) {
  RecoveryRecorder sinks[2];
  FailedRanks failed;
  Executor executor(2, failed);
  for (int rank = 0; rank < 2; ++rank) executor.attach(rank, &sinks[rank]);
  executor.recover(0, "rank 1 failed alone: a");
  executor.recover(0, "rank 0 failed alone: b");
  executor.recover(1, "rank 0 failed alone: c");
  executor.recover(0, "late");
  for (const RecoveryRecorder& sink : sinks) {
    ASSERT_EQ(sink.commands.size(), 2u);
    EXPECT_EQ(sink.commands[0].recover().epoch(), 0u);
    EXPECT_EQ(sink.commands[0].recover().cause(), "rank 1 failed alone: a");
    EXPECT_EQ(sink.commands[1].recover().epoch(), 1u);
    EXPECT_LT(sink.commands[0].seq(), sink.commands[1].seq());
  }
  EXPECT_EQ(executor.recoveries().count, 2u);
  EXPECT_EQ(executor.recoveries().last_failure, "rank 0 failed alone: c");
  EXPECT_FALSE(executor.fatal());
  EXPECT_EQ(failed.cause(), "");
}

/// Its save fails on all ranks alike, inside the verb.
class AlikeRun final : public FakeRunBase {
 public:
  AlikeRun(FakePlan& plan, std::uint64_t& recoveries)
      : FakeRunBase(plan, true), recoveries_(recoveries) {}
  train::StepOutput optim_step(const v1::OptimStepParams&) override {
    ++step_;
    return {};
  }
  void save_checkpoint(const train::JobProgress&, int) override {
    ++recoveries_;
    throw InvalidArgument("all refuse it", "ALIKE");
  }
  void export_hf(const std::filesystem::path&, const std::string&) override {}

 private:
  std::uint64_t& recoveries_;
};

/// Runs whose steps fail as if a rank had failed alone, with the recovery that goes with it.
class AloneFactory final : public RunFactory {
 public:
  std::unique_ptr<train::Run> create(const v1::RunConfig& config,
                                     const train::RunOptions& options) override {
    if (alike) return std::make_unique<AlikeRun>(plan_, recoveries_);
    return runs_.create(config, options);
  }
  std::uint64_t recoveries() const override { return recoveries_; }
  void join_recovery() override {
    ++joins;
    ++recoveries_;
    comm::rethrow_failed_alone(
        comm::encode_error(std::make_exception_ptr(InternalError("odd", "ODD")), 1), 1);
  }
  int joins = 0;
  bool alike = false;  ///< saves are refused by all ranks alike

 private:
  FakePlan plan_;
  FakeFactory runs_{plan_, 0};
  std::uint64_t recoveries_ = 0;
};

v1::RankCommand recover(std::uint64_t epoch) {
  v1::RankCommand command;
  command.mutable_recover()->set_epoch(epoch);
  return command;
}

TEST(Recovery, ARankThatWaitsForNothingJoinsAndItsRunsEnd) {
  AloneFactory factory;
  RankWorker worker(0, factory);
  EXPECT_FALSE(worker.execute(create_job_run("a")).has_error());
  EXPECT_FALSE(worker.execute(optim_step("a")).has_error());
  EXPECT_FALSE(worker.execute(recover(0)).has_error());
  EXPECT_EQ(factory.joins, 1);
  const v1::RankResult refused = worker.execute(optim_step("a"));
  EXPECT_EQ(refused.error().info().reason(), "RUN_FAILED");
  EXPECT_NE(refused.error().message().find("rank 1 failed alone: odd"), std::string::npos);
  EXPECT_FALSE(worker.execute(create_job_run("b")).has_error());
  EXPECT_FALSE(worker.execute(optim_step("b")).has_error());
  // A command for a recovery that is over.
  EXPECT_FALSE(worker.execute(recover(0)).has_error());
  EXPECT_EQ(factory.joins, 1);
  EXPECT_FALSE(worker.execute(optim_step("b")).has_error());
}

TEST(Recovery, WhatAllRanksEndAlikeStopsNothing) {
  AloneFactory factory;
  factory.alike = true;
  RankWorker worker(0, factory);
  EXPECT_FALSE(worker.execute(create_job_run("a")).has_error());
  EXPECT_EQ(worker.execute(save_checkpoint("a")).error().info().reason(), "ALIKE");
  EXPECT_FALSE(worker.execute(optim_step("a")).has_error());
  // Its recover command comes after a rank has failed alone: that failure waits for its own.
  EXPECT_THROW(factory.join_recovery(), InternalError);
  EXPECT_FALSE(worker.execute(recover(0)).has_error());
  EXPECT_EQ(worker.execute(optim_step("a")).error().info().reason(), "RANKS_RECOVERING");
  EXPECT_FALSE(worker.execute(recover(1)).has_error());
  EXPECT_FALSE(worker.execute(optim_step("a")).has_error());
}

TEST(Recovery, ARankThatHasMetTheOthersBeginsNothingBeforeTheCommand) {
  AloneFactory factory;
  RankWorker worker(0, factory);
  EXPECT_FALSE(worker.execute(create_job_run("a")).has_error());
  EXPECT_THROW(factory.join_recovery(), InternalError);  // as inside a verb
  EXPECT_EQ(worker.execute(optim_step("a")).error().info().reason(), "RANKS_RECOVERING");
  EXPECT_EQ(worker.execute(create_job_run("b")).error().info().reason(), "RANKS_RECOVERING");
  v1::RankCommand remove;
  remove.mutable_delete_run()->set_run("a");
  EXPECT_FALSE(worker.execute(remove).has_error());
  EXPECT_FALSE(worker.execute(recover(0)).has_error());
  EXPECT_EQ(factory.joins, 1);
  EXPECT_FALSE(worker.execute(create_job_run("b")).has_error());
  EXPECT_EQ(worker.execute(optim_step("a")).error_scope(), v1::ERROR_SCOPE_RUN_GONE);
}

}  // namespace
}  // namespace meshloom::control
