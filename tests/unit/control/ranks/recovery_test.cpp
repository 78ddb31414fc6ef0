// SPDX-License-Identifier: Apache-2.0
// What the command stream does when one rank has failed alone.
#include <gtest/gtest.h>

#include "daemon/control/ranks/executor.h"
#include "daemon/control/ranks/rank_worker.h"
#include "daemon/train/status_agreement.h"
#include "kernels/base/error.h"
#include "tests/unit/control/fake_run.h"

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
  Executor executor(2, [](const Error& cause) { ADD_FAILURE() << cause.what(); });
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
}

/// Runs whose save fails on all ranks alike, inside the verb.
class AlikeRun final : public train::Run {
 public:
  AlikeRun(std::unique_ptr<train::Run> run, std::uint64_t& recoveries)
      : run_(std::move(run)), recoveries_(recoveries) {}
  const v1::RunConfig& config() const override { return run_->config(); }
  std::int64_t step() const override { return run_->step(); }
  const std::vector<std::string>& notes() const override { return run_->notes(); }
  void forward_backward() override { run_->forward_backward(); }
  v1::StepMetrics optim_step() override { return run_->optim_step(); }
  void edit(const v1::JobSettings& settings) override { run_->edit(settings); }
  std::map<std::string, double> phase_seconds() const override { return run_->phase_seconds(); }
  std::vector<train::LossSum> evaluate(std::int64_t first, std::int64_t batches,
                                       const std::string& set) override {
    return run_->evaluate(first, batches, set);
  }
  std::filesystem::path save_state(const v1::ValidationProgress&) override {
    ++recoveries_;
    throw InvalidArgument("all refuse it", "ALIKE");
  }
  void export_hf(const std::filesystem::path& folder, const std::string& dtype) override {
    run_->export_hf(folder, dtype);
  }
  std::unique_ptr<train::Sample> begin_sample(
      const std::vector<train::SampleStart>& sequences) override {
    return run_->begin_sample(sequences);
  }

 private:
  std::unique_ptr<train::Run> run_;
  std::uint64_t& recoveries_;
};

/// Runs whose steps fail as if a rank had failed alone, with the recovery that goes with it.
class AloneFactory final : public RunFactory {
 public:
  std::unique_ptr<train::Run> create(const v1::RunConfig& config,
                                     const train::RunOptions& options) override {
    auto run = runs_.create(config, options);
    if (alike) return std::make_unique<AlikeRun>(std::move(run), recoveries_);
    return run;
  }
  std::unique_ptr<train::SteppedRun> create_stepped(const v1::RunConfig&,
                                                    const train::SteppedRunOptions&) override {
    throw InternalError("no client drives a run here");
  }
  std::uint64_t recoveries() const override { return recoveries_; }
  void join_recovery() override {
    ++joins;
    ++recoveries_;
    train::rethrow_failed_alone(
        train::encode_error(std::make_exception_ptr(InternalError("odd", "ODD")), 1), 1);
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

v1::RankCommand create(const std::string& name) {
  v1::RankCommand command;
  command.mutable_create_run()->set_run(name);
  return command;
}

v1::RankCommand step(const std::string& name) {
  v1::RankCommand command;
  command.mutable_optim_step()->set_run(name);
  return command;
}

TEST(Recovery, ARankThatWaitsForNothingJoinsAndItsRunsEnd) {
  AloneFactory factory;
  RankWorker worker(0, factory);
  EXPECT_FALSE(worker.execute(create("a")).has_error());
  EXPECT_FALSE(worker.execute(step("a")).has_error());
  EXPECT_FALSE(worker.execute(recover(0)).has_error());
  EXPECT_EQ(factory.joins, 1);
  const v1::RankResult refused = worker.execute(step("a"));
  EXPECT_EQ(refused.error().info().reason(), "RUN_FAILED");
  EXPECT_NE(refused.error().message().find("rank 1 failed alone: odd"), std::string::npos);
  EXPECT_FALSE(worker.execute(create("b")).has_error());
  EXPECT_FALSE(worker.execute(step("b")).has_error());
  // A command for a recovery that is over.
  EXPECT_FALSE(worker.execute(recover(0)).has_error());
  EXPECT_EQ(factory.joins, 1);
  EXPECT_FALSE(worker.execute(step("b")).has_error());
}

TEST(Recovery, WhatAllRanksEndAlikeStopsNothing) {
  AloneFactory factory;
  factory.alike = true;
  RankWorker worker(0, factory);
  EXPECT_FALSE(worker.execute(create("a")).has_error());
  v1::RankCommand save;
  save.mutable_save_state()->set_run("a");
  EXPECT_EQ(worker.execute(save).error().info().reason(), "ALIKE");
  EXPECT_FALSE(worker.execute(step("a")).has_error());
  // Its recover command comes after a rank has failed alone: that failure waits for its own.
  EXPECT_THROW(factory.join_recovery(), InternalError);
  EXPECT_FALSE(worker.execute(recover(0)).has_error());
  EXPECT_EQ(worker.execute(step("a")).error().info().reason(), "RANKS_RECOVERING");
  EXPECT_FALSE(worker.execute(recover(1)).has_error());
  EXPECT_FALSE(worker.execute(step("a")).has_error());
}

TEST(Recovery, ARankThatHasMetTheOthersBeginsNothingBeforeTheCommand) {
  AloneFactory factory;
  RankWorker worker(0, factory);
  EXPECT_FALSE(worker.execute(create("a")).has_error());
  EXPECT_THROW(factory.join_recovery(), InternalError);  // as inside a verb
  EXPECT_EQ(worker.execute(step("a")).error().info().reason(), "RANKS_RECOVERING");
  EXPECT_EQ(worker.execute(create("b")).error().info().reason(), "RANKS_RECOVERING");
  v1::RankCommand remove;
  remove.mutable_delete_run()->set_run("a");
  EXPECT_FALSE(worker.execute(remove).has_error());
  EXPECT_FALSE(worker.execute(recover(0)).has_error());
  EXPECT_EQ(factory.joins, 1);
  EXPECT_FALSE(worker.execute(create("b")).has_error());
  EXPECT_EQ(worker.execute(step("a")).error_scope(), v1::ERROR_SCOPE_RUN_GONE);
}

}  // namespace
}  // namespace meshloom::control
