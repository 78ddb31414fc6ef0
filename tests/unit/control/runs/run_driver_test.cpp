// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_driver.h"

#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/control/ranks/rank_error.h"
#include "tests/support/eventually.h"
#include "tests/unit/control/runs/whole_run.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A rank that answers each command by a function, and one thread that drives the run.
class RunDriverTest : public WholeRunTest {
 protected:
  using Answering = std::function<void(const v1::RankCommand&, v1::RankResult*)>;

  RunDriverTest() : rank_([this] { answer_commands(); }) {}
  ~RunDriverTest() override {
    if (driver_.joinable()) {
      life_.close(std::nullopt);
      driver_.join();
    }
    commands_.close();
    rank_.join();
  }

  void drive() {
    driver_ = std::thread([this] { RunDriver(parts_, life_).drive(); });
  }
  void join() { driver_.join(); }
  /// An optimizer step of a run that is driven already has been done.
  bool does_step(std::int64_t seq) {
    const std::string step = submit_step(seq).name();
    life_.wake();
    return ends(step) && state_of(step) == v1::OPERATION_STATE_SUCCEEDED;
  }
  /// The function throws where a command is to fail, and the rank tells that error.
  void answer_by(Answering answering) {
    const std::lock_guard lock(mutex_);
    answering_ = std::move(answering);
  }
  /// The verbs that the rank was asked for, in their order, with what tells them apart.
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  v1::OperationState state_of(const std::string& operation) {
    return operations_.get(operation).state();
  }
  bool ends(const std::string& operation) {
    return test::eventually([&] { return !operations_.is_open(operation); });
  }
  std::string reason_of_failure(const std::string& operation) {
    return operations_.get(operation).error().info().reason();
  }

 private:
  static std::string name_of(const v1::RankCommand& command) {
    if (command.has_create_run()) {
      const std::string& state = command.create_run().folders().state();
      return state.empty() ? "create" : "create from " + folder_name(state);
    }
    if (command.has_write_state()) return "write " + folder_name(command.write_state().folder());
    if (command.has_poison()) return "poison: " + command.poison().cause();
    if (command.has_apply_gradients()) return "step";
    if (command.has_loss()) return "loss";
    if (command.has_delete_run()) return "delete";
    return "other";
  }
  /// The name of a saved state, whose folder is called by it, its epoch and its number.
  static std::string folder_name(const std::string& folder) {
    std::string name = std::filesystem::path(folder).filename().string();
    for (int part = 0; part < 2; ++part) name.resize(name.rfind('-'));
    return name;
  }
  void answer_commands() {
    while (const CommandPtr command = commands_.pop()) {
      v1::RankResult result;
      result.set_seq(command->seq());
      if (command->has_apply_gradients())
        result.mutable_apply_gradients()->mutable_output()->set_step(++steps_);
      if (command->has_create_run()) result.mutable_create_run()->set_step_count(steps_);
      if (command->has_write_state()) result.mutable_write_state()->set_step(steps_);
      if (command->has_loss()) result.mutable_loss();
      Answering answering;
      {
        const std::lock_guard lock(mutex_);
        asked_.push_back(name_of(*command));
        answering = answering_;
      }
      try {
        if (answering) answering(*command, &result);
      } catch (...) {
        set_error(std::current_exception(), &result);
      }
      executor_.complete(result);
    }
  }

  std::mutex mutex_;
  Answering answering_;
  std::vector<std::string> asked_;
  std::int64_t steps_ = 0;  ///< by the thread of the rank
  std::thread rank_, driver_;
};

TEST_F(RunDriverTest, CarriesOutVerbsInTheirOrderAndLetsTheRanksForgetTheRun) {
  const std::string second = submit_step(2).name();
  const std::string first = submit_step(1).name();
  drive();
  ASSERT_TRUE(ends(first));
  ASSERT_TRUE(ends(second));
  ASSERT_EQ(state_of(first), v1::OPERATION_STATE_SUCCEEDED);
  ASSERT_EQ(state_of(second), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(operations_.result(first)->optim_step().step(), 1);
  EXPECT_EQ(operations_.result(second)->optim_step().step(), 2);
  EXPECT_EQ(run().step(), 2);
  EXPECT_EQ(run().state(), v1::RUN_STATE_READY);
  life_.close(std::nullopt);
  join();
  EXPECT_THAT(asked(), ElementsAre("create", "step", "step", "delete"));
  EXPECT_EQ(stored().state(), v1::RUN_STATE_CLOSED);
}

TEST_F(RunDriverTest, ARunThatHasEndedIsNotMade) {
  life_.close(std::nullopt);
  drive();
  join();
  EXPECT_TRUE(asked().empty());
}

TEST_F(RunDriverTest, ADamagedStateIsSkippedForAnOlderOneAndTold) {
  parts_.states.keep(state("old", 4));
  parts_.states.keep(state("new", 6));
  answer_by([](const v1::RankCommand& command, v1::RankResult*) {
    if (command.create_run().folders().state().find("new") != std::string::npos)
      throw DataLoss("a file is cut", "CHECKPOINT_DAMAGED");
  });
  drive();
  ASSERT_TRUE(test::eventually([&] { return run().state() == v1::RUN_STATE_READY; }));
  EXPECT_THAT(asked(), ElementsAre("create from new", "create from old"));
  EXPECT_EQ(run().epoch(), 2) << "who counts on what \"new\" held is told";
  EXPECT_EQ(run().cause().info().reason(), RunLifecycle::kStateDamaged);
  EXPECT_EQ(run().cause().info().metadata().at("state"), "runs/r/states/new");
}

TEST_F(RunDriverTest, WhatCannotBeMadeFailsWithItsCauseAndAllThatWaits) {
  const std::string waiting = submit_step(1).name();
  answer_by([](const v1::RankCommand&, v1::RankResult*) {
    throw InvalidArgument("no such data", "DATA_NOT_FOUND");
  });
  drive();
  join();
  EXPECT_THAT(asked(), ElementsAre("create"));
  EXPECT_EQ(stored().state(), v1::RUN_STATE_FAILED);
  EXPECT_EQ(stored().cause().info().reason(), "DATA_NOT_FOUND");
  EXPECT_EQ(reason_of_failure(waiting), "RUN_CLOSED");
}

TEST_F(RunDriverTest, AVerbThatFailsOnAllRanksAlikeFailsAlone) {
  std::atomic<bool> failed{false};
  answer_by([&](const v1::RankCommand& command, v1::RankResult*) {
    if (command.has_apply_gradients() && !failed.exchange(true))
      throw FailedPrecondition("there are no gradients", "NO_GRADIENTS");
  });
  const std::string first = submit_step(1).name(), second = submit_step(2).name();
  drive();
  ASSERT_TRUE(ends(second));
  EXPECT_EQ(reason_of_failure(first), "NO_GRADIENTS");
  EXPECT_EQ(state_of(second), v1::OPERATION_STATE_SUCCEEDED);
  EXPECT_EQ(run().epoch(), 1);
}

TEST_F(RunDriverTest, WhatOneRankHasLostIsMadeAnewFromTheNewestState) {
  parts_.states.keep(state("a", 4));
  std::atomic<bool> failed{false};
  answer_by([&](const v1::RankCommand& command, v1::RankResult*) {
    if (command.has_apply_gradients() && !failed.exchange(true))
      throw RunLost(InternalError("rank 1 failed alone", "ODD"));
  });
  const std::string first = submit_step(1).name();
  drive();
  ASSERT_TRUE(ends(first));
  EXPECT_EQ(reason_of_failure(first), "ODD");
  ASSERT_TRUE(test::eventually([&] {
    const v1::Run now = run();
    return now.epoch() == 2 && now.state() == v1::RUN_STATE_READY;
  }));
  EXPECT_THAT(asked(), ElementsAre("create from a", "step", "create from a"));
  EXPECT_EQ(parts_.queue.next(), 5);
}

TEST_F(RunDriverTest, GradientsOfACancelledVerbDoNotCount) {
  const std::string cancelled = submit(v1::ForwardBackwardRequest(), 1).name();
  operations_.cancel(cancelled);
  const std::string step = submit_step(2).name();
  drive();
  ASSERT_TRUE(ends(step));
  EXPECT_THAT(asked(), ElementsAre("create", HasSubstr("poison: verb 1"), "step"));
  EXPECT_EQ(state_of(cancelled), v1::OPERATION_STATE_CANCELLED);
}

TEST_F(RunDriverTest, ALeaseThatEndsIsSavedForAWeek) {
  drive();
  ASSERT_TRUE(does_step(1));
  life_.close(FailedPrecondition("its lease has ended", RunLifecycle::kLeaseEnded));
  join();
  EXPECT_THAT(asked(), ElementsAre("create", "step", "write lease-1", "delete"));
  EXPECT_EQ(store_.state("runs/r/states/lease-1").ttl_seconds(), 7 * 24 * 3600);
  EXPECT_EQ(stored().state(), v1::RUN_STATE_CLOSED);
}

TEST_F(RunDriverTest, ADaemonThatStopsSavesTheRunAndLeavesItToTheNext) {
  drive();
  ASSERT_TRUE(does_step(1));
  context_.stopping = true;
  life_.wake();
  join();
  EXPECT_THAT(asked(), ElementsAre("create", "step", "write stop-1", "delete"));
  EXPECT_EQ(store_.state("runs/r/states/stop-1").ttl_seconds(), 0);
  EXPECT_EQ(stored().state(), v1::RUN_STATE_READY) << "the next daemon begins it anew";
}

TEST_F(RunDriverTest, ALastStateThatCannotBeWrittenIsToldInANote) {
  answer_by([](const v1::RankCommand& command, v1::RankResult*) {
    if (command.has_write_state()) throw ResourceExhausted("the disk is full", "DISK_FULL");
  });
  drive();
  ASSERT_TRUE(does_step(1));
  life_.close(FailedPrecondition("its lease has ended", RunLifecycle::kLeaseEnded));
  join();
  ASSERT_EQ(stored().notes_size(), 1);
  EXPECT_THAT(stored().notes(0), HasSubstr("the disk is full"));
  EXPECT_EQ(asked().back(), "delete");
}

}  // namespace
}  // namespace meshloom::control
