// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/executor.h"

#include <gtest/gtest.h>

#include <thread>

#include "daemon/control/ranks/rank_error.h"
#include "tests/unit/control/ranks/failed_ranks.h"
#include "tests/unit/control/ranks/rank_messages.h"

namespace meshloom::control {
namespace {

/// Answers by hand.
struct Recorder : CommandSink {
  std::vector<v1::RankCommand> commands;
  bool send(CommandPtr command) override {
    commands.push_back(*command);
    return true;
  }
};

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() {
    executor_.attach(0, &ranks_[0]);
    executor_.attach(1, &ranks_[1]);
  }
  Recorder ranks_[2];
  FailedRanks failed_;
  Executor executor_{2, failed_};
};

TEST_F(ExecutorTest, EveryRankGetsTheSameCommandsInOrder) {
  executor_.set_epoch(7);
  for (int i = 0; i < 3; ++i) executor_.submit(optim_step("a"));
  for (const auto& rank : ranks_) {
    ASSERT_EQ(rank.commands.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(rank.commands[i].seq(), static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(rank.commands[i].epoch(), 7);
    }
  }
}

TEST_F(ExecutorTest, EveryRankGetsItsPartOfOneVerb) {
  executor_.submit(optim_step("before"));
  const auto ticket = executor_.submit_parts({optim_step("zero"), optim_step("one")});
  EXPECT_EQ(ranks_[0].commands[1].apply_gradients().run(), "zero");
  EXPECT_EQ(ranks_[1].commands[1].apply_gradients().run(), "one");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks_[rank].commands[1].seq(), 2);
    executor_.complete(answer(2, rank));
  }
  EXPECT_EQ(executor_.wait(ticket).seq(), 2);
  EXPECT_THROW(executor_.submit_parts({optim_step("alone")}), InternalError);
}

TEST_F(ExecutorTest, NothingComesBetweenCommandsThatAreSubmittedTogether) {
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) executor_.submit(optim_step("other"));
  });
  for (int i = 0; i < 200; ++i) {
    const auto tickets = executor_.submit_together({optim_step("a"), optim_step("b")});
    ASSERT_EQ(tickets.size(), 2u);
  }
  other.join();
  for (const auto& rank : ranks_)
    for (std::size_t i = 0; i < rank.commands.size(); ++i)
      if (rank.commands[i].apply_gradients().run() == "a") {
        ASSERT_EQ(rank.commands.at(i + 1).apply_gradients().run(), "b");
      }
}

TEST_F(ExecutorTest, WaitsForAllRanksAndMergesMemory) {
  const auto ticket = executor_.submit(optim_step("a"));
  auto first = answer(1, 0);
  first.set_peak_memory_bytes(10);
  first.mutable_write_state()->set_step(15);
  executor_.complete(first);
  executor_.complete(first);  // a repeat counts once
  EXPECT_TRUE(executor_.unanswered(1));
  auto second = answer(1, 1);
  second.set_peak_memory_bytes(30);
  executor_.complete(second);
  executor_.complete(answer(99, 0));
  executor_.complete(answer(1, 17));
  const auto result = executor_.wait(ticket);
  EXPECT_EQ(result.peak_memory_bytes(), 30);
  EXPECT_EQ(result.write_state().step(), 15);
  EXPECT_EQ(executor_.memory_of(1).peak, 30);
}

TEST_F(ExecutorTest, ThrowsTheErrorOfTheLowestRank) {
  const auto ticket = executor_.submit(optim_step("a"));
  auto failed = answer(1, 1);
  set_error(std::make_exception_ptr(NumericError("loss is nan")), &failed);
  executor_.complete(answer(1, 0));
  executor_.complete(failed);
  try {
    executor_.wait(ticket);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
  }
  EXPECT_FALSE(executor_.fatal());
}

TEST_F(ExecutorTest, AFatalCauseReachesAllThatWaitAndAllRanks) {
  const auto ticket = executor_.submit(optim_step("a"));
  std::thread lost([&] { executor_.fail(CommError("rank 1 left")); });
  EXPECT_THROW(executor_.wait(ticket), Error);
  lost.join();
  executor_.fail(CommError("a later one"));
  EXPECT_EQ(failed_.cause(), "rank 1 left");
  EXPECT_THROW(executor_.submit(optim_step("a")), Error);
  EXPECT_EQ(ranks_[0].commands.back().abort().cause(), "rank 1 left");
  EXPECT_EQ(ranks_[1].commands.back().abort().cause(), "rank 1 left");
}

TEST_F(ExecutorTest, AResultThatLeavesTheRanksOutOfStepIsFatalForAllThatWait) {
  const auto first = executor_.submit(optim_step("a"));
  const auto second = executor_.submit(optim_step("a"));
  auto failed = answer(1, 1);
  set_error(std::make_exception_ptr(CommError("all_reduce: rank 0 is missing")), &failed);
  executor_.complete(failed);
  EXPECT_EQ(failed_.cause(), "all_reduce: rank 0 is missing");
  EXPECT_THROW(executor_.wait(first), Error);
  EXPECT_THROW(executor_.wait(second), Error);
}

TEST_F(ExecutorTest, TellsOfWhatIsNotAnswered) {
  auto command = optim_step("a");
  command.set_deadline_ms(20);
  executor_.submit(command);
  executor_.complete(answer(1, 0));
  ASSERT_TRUE(executor_.unanswered(1));
  EXPECT_EQ(executor_.unanswered(1)->verb, "optim_step");
  EXPECT_EQ(executor_.unanswered(1)->deadline_ms, 20);
  executor_.complete(answer(1, 1));
  EXPECT_FALSE(executor_.unanswered(1));
  EXPECT_FALSE(executor_.unanswered(0));
}

TEST_F(ExecutorTest, ACommandIsStoppedUntilRankZeroHasAskedForTheLastTime) {
  const auto first = executor_.submit(optim_step("a")), second = executor_.submit(optim_step("a"));
  EXPECT_FALSE(executor_.is_stopped(1, false));
  EXPECT_TRUE(executor_.request_stop(first));
  EXPECT_TRUE(executor_.is_stopped(1, false));
  EXPECT_TRUE(executor_.is_stopped(1, true));
  EXPECT_FALSE(executor_.is_stopped(2, true)) << "it is another one";
  EXPECT_FALSE(executor_.request_stop(second)) << "nobody would be told";
  EXPECT_FALSE(executor_.is_stopped(2, true));
  EXPECT_FALSE(executor_.is_stopped(77, false));
  const auto third = executor_.submit(optim_step("a"));
  for (int rank = 0; rank < 2; ++rank) executor_.complete(answer(3, rank));
  EXPECT_FALSE(executor_.request_stop(third));
}

TEST_F(ExecutorTest, TakesNothingAfterTheStop) {
  executor_.stop();
  executor_.stop();
  EXPECT_TRUE(ranks_[1].commands.back().has_stop());
  EXPECT_EQ(ranks_[1].commands.size(), 1u);
  EXPECT_THROW(executor_.submit(optim_step("a")), Unavailable);
}

TEST_F(ExecutorTest, ACommandThatIsTooLargeReachesNoRank) {
  try {
    executor_.submit(sample_of(7'000'000));
    FAIL();
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "COMMAND_TOO_LARGE");
    EXPECT_NE(std::string(error.what()).find("command sample has 350000"), std::string::npos)
        << error.what();
  }
  executor_.submit(optim_step("a"));
  for (const auto& rank : ranks_) {
    ASSERT_EQ(rank.commands.size(), 1u);
    EXPECT_EQ(rank.commands[0].seq(), 1);
  }
  EXPECT_FALSE(executor_.fatal());
}

TEST(Executor, RefusesWhileRanksAreMissing) {
  FailedRanks failed;
  Executor executor(2, failed);
  Recorder rank;
  executor.attach(0, &rank);
  EXPECT_FALSE(executor.all_attached());
  EXPECT_THROW(executor.submit(optim_step("a")), Unavailable);
}

}  // namespace
}  // namespace meshloom::control
