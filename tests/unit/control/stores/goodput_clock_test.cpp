// SPDX-License-Identifier: Apache-2.0
// Where the time of a job goes: by its states, by what its attempts do, over restarts.
#include "daemon/control/stores/goodput_clock.h"

#include <gtest/gtest.h>

#include <thread>

#include "daemon/base/goodput.h"
#include "daemon/base/timestamp.h"
#include "tests/unit/control/stores/job_store_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using GoodputTest = JobStoreTest;
using Cause = GoodputClock::Cause;

double lost(const v1::Goodput& goodput, const std::string& cause) {
  for (const auto& [name, seconds] : base::lost_seconds(goodput))
    if (name == cause) return seconds;
  return 0.0;
}

TEST(GoodputClockTest, AStateIsWhatItsTimeWasLostTo) {
  v1::Goodput goodput;
  count_state(v1::JOB_STATE_QUEUED, {}, 100.0, &goodput);  // where it begins
  EXPECT_EQ(base::total_seconds(goodput), 0.0);
  count_state(v1::JOB_STATE_QUEUED, {}, 103.0, &goodput);
  count_state(v1::JOB_STATE_PAUSED, v1::PAUSE_CODE_DRAIN, 104.0, &goodput);
  count_state(v1::JOB_STATE_PAUSED, v1::PAUSE_CODE_CLIENT, 106.0, &goodput);
  count_state(v1::JOB_STATE_HELD, {}, 111.0, &goodput);
  count_state(v1::JOB_STATE_RUNNING, {}, 118.0, &goodput);  // a daemon that was away
  EXPECT_EQ(lost(goodput, "queue"), 3.0);
  EXPECT_EQ(lost(goodput, "drained"), 1.0);
  EXPECT_EQ(lost(goodput, "paused"), 2.0);
  EXPECT_EQ(lost(goodput, "held"), 5.0);
  EXPECT_EQ(lost(goodput, "recovery"), 7.0);
  count_state(v1::JOB_STATE_QUEUED, {}, 50.0, &goodput);  // the clock went back
  EXPECT_EQ(base::total_seconds(goodput), 18.0);
  EXPECT_EQ(goodput.until(), 50.0);
}

TEST(GoodputClockTest, AnAttemptDividesItsTime) {
  const double begin = base::now_seconds();
  v1::Goodput before;
  before.set_until(begin - 2.0);
  GoodputClock clock(before);
  std::this_thread::sleep_for(10ms);
  clock.enter(Cause::kProductive);
  std::this_thread::sleep_for(30ms);
  {
    const GoodputClock::During during(clock, Cause::kSave);
    std::this_thread::sleep_for(10ms);
    clock.saved();
  }
  std::this_thread::sleep_for(20ms);
  const v1::Goodput whole = clock.now();
  EXPECT_GE(whole.productive(), 0.050);
  EXPECT_GE(lost(whole, "start"), 2.010);
  EXPECT_GE(lost(whole, "save"), 0.010);
  EXPECT_NEAR(base::total_seconds(whole), whole.until() - (begin - 2.0), 0.005);
  const v1::Goodput cut = clock.now_without_lost_steps();
  EXPECT_GE(lost(cut, "recovery"), 0.020);
  EXPECT_GE(cut.productive(), 0.030);
  EXPECT_LT(cut.productive(), whole.productive());
}

TEST(GoodputClockTest, TheTextHasTheMostFirst) {
  v1::Goodput goodput;
  EXPECT_EQ(base::goodput_text(goodput), "");
  goodput.set_productive(90.0);
  goodput.mutable_lost()->set_queue(3.0);
  goodput.mutable_lost()->set_start(7.0);
  goodput.mutable_lost()->set_save(0.001);
  EXPECT_EQ(base::goodput_text(goodput), "90.0 % of 100.0 s; lost: start 7.00 s, queue 3.00 s");
}

TEST_F(GoodputTest, SecondsAddUpToTheWallTimeOverPausesAndRestarts) {
  double begin = 0;
  {
    const auto store = open();
    begin = submit(*store, "a").goodput().until();
    std::this_thread::sleep_for(20ms);
    store->pause("a", v1::PAUSE_CODE_CLIENT, {});
    std::this_thread::sleep_for(20ms);
    store->resume("a", {});
    const v1::Job attempt = store->begin_attempt("a");
    GoodputClock clock(attempt.goodput());
    move(*store, "a", v1::JOB_STATE_RUNNING);
    clock.enter(Cause::kProductive);
    std::this_thread::sleep_for(30ms);
    clock.saved();
    store->checkpoint_saved("a", 1, 1.0, clock.now());
    store->close();
  }
  // What was done behind the checkpoint is lost with the daemon.
  std::this_thread::sleep_for(50ms);
  const auto store = open();
  const v1::Goodput goodput = store->get("a").goodput();
  EXPECT_GE(lost(goodput, "queue"), 0.020);
  EXPECT_GE(lost(goodput, "paused"), 0.020);
  EXPECT_GE(goodput.productive(), 0.030);
  EXPECT_GE(lost(goodput, "recovery"), 0.050);
  EXPECT_NEAR(base::total_seconds(goodput), goodput.until() - begin, 0.01);
}

}  // namespace
}  // namespace meshloom::control
