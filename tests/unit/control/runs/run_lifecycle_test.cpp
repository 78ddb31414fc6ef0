// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_lifecycle.h"

#include <thread>

#include "daemon/control/ranks/rank_error.h"
#include "tests/unit/control/runs/whole_run.h"

namespace meshloom::control {
namespace {

class RunLifecycleTest : public WholeRunTest {
 protected:
  using Act = RunLifecycle::Act;

  void make_ready() {
    ASSERT_TRUE(life_.begin_driving());
    life_.set_made({});
    life_.set_state(v1::RUN_STATE_READY);
  }
  std::string why_not_open(std::int64_t epoch = 1) {
    return reason_of([&] { life_.lock().check_open(epoch); });
  }
  static std::exception_ptr lost() {
    return std::make_exception_ptr(RunLost(InternalError("rank 1 failed alone", "ODD")));
  }
};

TEST_F(RunLifecycleTest, ARunThatNobodyDrivesEndsAtOnce) {
  const std::string waiting = submit_step(1).name();
  EXPECT_EQ(why_not_open(), "");
  life_.close(std::nullopt);
  EXPECT_TRUE(life_.ended());
  EXPECT_EQ(why_not_open(), "RUN_CLOSED");
  EXPECT_EQ(operations_.get(waiting).error().info().reason(), "RUN_CLOSED");
  EXPECT_EQ(stored().state(), v1::RUN_STATE_CLOSED);
  EXPECT_FALSE(life_.begin_driving());
}

TEST_F(RunLifecycleTest, WhereItsLeaseEndsItIsSavedBeforeItsClientIsToldFromWhat) {
  make_ready();
  life_.close(FailedPrecondition("its lease has ended", RunLifecycle::kLeaseEnded));
  EXPECT_EQ(stored().state(), v1::RUN_STATE_CLOSING) << "the next daemon does not begin it anew";
  EXPECT_EQ(why_not_open(), "LEASE_ENDING");
  EXPECT_EQ(life_.wait_for_next().act, Act::kEnd);
  EXPECT_TRUE(life_.ending().closed);
  EXPECT_TRUE(life_.ending().save);
  life_.end_saving();
  EXPECT_EQ(why_not_open(), "LEASE_ENDED");
  life_.end_as(v1::RUN_STATE_CLOSED);
  EXPECT_TRUE(life_.ended());
  EXPECT_EQ(why_not_open(), "LEASE_ENDED");
}

TEST_F(RunLifecycleTest, WhatIsLostBeginsTheNextEpochFromTheNewestState) {
  make_ready();
  parts_.states.keep(state("a", 4));
  const std::string waiting = submit_step(1).name();
  life_.lose(lost());
  EXPECT_EQ(life_.wait_for_next().act, Act::kMake);
  EXPECT_EQ(run().epoch(), 2);
  EXPECT_EQ(run().step(), 4);
  EXPECT_EQ(parts_.queue.next(), 5);
  const v1::ErrorDetails error = operations_.get(waiting).error();
  EXPECT_EQ(error.info().reason(), "RUN_RECOVERED");
  EXPECT_EQ(error.info().metadata().at("state"), "runs/r/states/a");
  EXPECT_EQ(error.info().metadata().at("next_seq"), "5");
  EXPECT_EQ(why_not_open(1), "RUN_RECOVERED");
  EXPECT_EQ(why_not_open(2), "");
  EXPECT_EQ(why_not_open(3), "EPOCH_UNKNOWN");
  EXPECT_EQ(reason_of([&] { life_.explain_lost(1); }), "RUN_RECOVERED");
  EXPECT_EQ(reason_of([&] { life_.explain_lost(2); }), "");
}

TEST_F(RunLifecycleTest, ALostRunWaitsForTheAnswersOfWhatIsInFlight) {
  make_ready();
  submit_step(1);
  submit_step(2);
  EXPECT_EQ(life_.wait_for_next().act, Act::kStart);
  parts_.queue.add_in_flight(std::vector<VerbInFlight>(1));
  life_.lose(lost());
  std::thread collector([&] {
    parts_.queue.wait_for_oldest();
    parts_.queue.fail_oldest(lost());
    life_.wake();
  });
  EXPECT_EQ(life_.wait_for_next().act, Act::kMake) << "and not the second verb";
  collector.join();
}

TEST_F(RunLifecycleTest, DrainsOneThatIsDrivenOnceItIsSaved) {
  make_ready();
  life_.drain();
  EXPECT_EQ(life_.wait_for_next().act, Act::kSave);
  life_.end_drain(false);
  EXPECT_EQ(why_not_open(), "") << "it could not be saved and goes on";
  EXPECT_EQ(run().notes_size(), 1);
  life_.drain();
  EXPECT_EQ(life_.wait_for_next().act, Act::kSave);
  life_.end_drain(true);
  EXPECT_EQ(why_not_open(), "RUN_CLOSED");
  EXPECT_EQ(stored().state(), v1::RUN_STATE_CLOSING);
  EXPECT_EQ(stored().cause().info().reason(), "DRAINED");
  EXPECT_FALSE(life_.ending().save);
}

TEST_F(RunLifecycleTest, ASampleThatFindsTheRunLostEndsWithItsEpoch) {
  make_ready();
  SampleOrder order;
  order.starts.resize(1);
  order.epoch = 1;
  const auto progress = RunSample::make_progress(order);
  const std::string first = parts_.samples.add(order, progress).name();
  const std::string second = parts_.samples.add(order, progress).name();
  EXPECT_FALSE(life_.end_lost_sample(1, first, nullptr)) << "it ends by itself";
  EXPECT_TRUE(life_.end_lost_sample(1, first, lost()));
  EXPECT_TRUE(operations_.is_open(first));
  EXPECT_EQ(life_.wait_for_next().act, Act::kMake);
  EXPECT_EQ(operations_.get(first).error().info().reason(), "RUN_RECOVERED");
  EXPECT_TRUE(life_.end_lost_sample(1, second, nullptr)) << "what it drew from is gone";
  EXPECT_EQ(operations_.get(second).error().info().reason(), "RUN_RECOVERED");
}

TEST_F(RunLifecycleTest, OneThatIsForgottenComesBackNoMore) {
  life_.close(std::nullopt);
  life_.forget();
  store_.remove("r");
  life_.replace_token("other");
  EXPECT_EQ(store_.all().count("r"), 0u);
}

}  // namespace
}  // namespace meshloom::control
