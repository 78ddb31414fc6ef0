// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_store.h"
#include "daemon/base/states.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "kernels/base/error.h"
#include "tests/unit/control/stores/job_store_fixture.h"
#include "tests/unit/control/waking.h"

namespace meshloom::control {
namespace {

TEST_F(JobStoreTest, JobsRunInOrderOfSubmission) {
  const auto store = open();
  EXPECT_EQ(submit(*store, "").name(), "jobs/job-1");
  EXPECT_EQ(submit(*store, "b").name(), "jobs/b");
  EXPECT_EQ(store->wait_for_job(), "job-1");
  EXPECT_EQ(store->begin_attempt("job-1").epoch(), 1);
  EXPECT_EQ(store->wait_for_job(), "b");
  move(*store, "job-1", v1::JOB_STATE_RUNNING);
  move(*store, "job-1", v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(store->get("job-1").finish_time().empty());
  EXPECT_EQ(store->begin_attempt("b").epoch(), 2);
  EXPECT_THROW(submit(*store, "b"), AlreadyExists);
  EXPECT_THROW(store->get("nobody"), NotFound);
}

TEST_F(JobStoreTest, ARestartFindsEverythingThatWasAcknowledged) {
  {
    const auto store = open();
    submit(*store, "done");
    submit(*store, "running", key("id-1", "running"));
    submit(*store, "cancelling");
    submit(*store, "waiting");
    for (const auto* id : {"done", "running", "cancelling"}) {
      store->begin_attempt(id);
      move(*store, id, v1::JOB_STATE_RUNNING);
    }
    move(*store, "done", v1::JOB_STATE_SUCCEEDED);
    store->cancel("cancelling", {});
    v1::ValidationMetrics validation;
    validation.set_loss(5.5);
    store->publish_validation("running", validation);
    store->checkpoint_saved("running", 7, 0.5);
    v1::StepMetrics step;
    step.set_step(8);
    store->publish_step("running", step);
  }
  const auto store = open();
  EXPECT_EQ(store->get("done").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(store->get("running").state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(store->get("running").first_validation().loss(), 5.5);
  EXPECT_EQ(store->get("running").step(), 7) << "the next attempt begins there";
  EXPECT_EQ(store->get("cancelling").state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(store->get("waiting").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(store->wait_for_job(), "running");
  EXPECT_EQ(store->begin_attempt("running").attempt(), 2);
  EXPECT_EQ(store->find_request(key("id-1", "running"))->name(), "jobs/running");
  EXPECT_EQ(submit(*store, "").name(), "jobs/job-1");
}

TEST_F(JobStoreTest, RevisionsNeverGoBackOverARestart) {
  std::int64_t seen = 0;
  {
    const auto store = open();
    submit(*store, "a");
    store->begin_attempt("a");
    move(*store, "a", v1::JOB_STATE_RUNNING);
    for (int i = 0; i < 25'000; ++i) store->publish_step("a", {});
    seen = store->get("a").revision();
  }
  const auto store = open();
  EXPECT_GE(store->get("a").revision(), seen);
}

TEST_F(JobStoreTest, HeldJobsWaitAndNewOnesRun) {
  {
    const auto store = open();
    submit(*store, "old");
  }
  const auto store = open(true);
  submit(*store, "new");
  EXPECT_EQ(store->wait_for_job(), "new");
  store->cancel("old", {});
  EXPECT_EQ(store->get("old").state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobStoreTest, AJobWhosePauseHasEndedWaitsAsWell) {
  {
    const auto store = open();
    submit(*store, "old");
    store->pause("old", v1::PAUSE_CODE_UNSPECIFIED, {});
  }
  const auto store = open(true);
  EXPECT_EQ(store->get("old").state(), v1::JOB_STATE_HELD);
  EXPECT_EQ(store->next_job(), std::nullopt);
  store->release("old", {});
  EXPECT_EQ(store->next_job(), "old");
}

TEST_F(JobStoreTest, ARepeatedRequestGetsTheFirstAnswer) {
  const auto store = open();
  const auto first = submit(*store, "a", key("id", "a"));
  EXPECT_EQ(submit(*store, "a", key("id", "a")).name(), first.name());
  try {
    submit(*store, "b", key("id", "b"));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.reason(), "REQUEST_ID_REUSED");
  }
  v1::SubmitJobRequest bad;
  bad.set_request_id("../x");
  EXPECT_THROW(make_request_key("SubmitJob", bad, "tester"), InvalidArgument);
}

TEST_F(JobStoreTest, AHundredRepeatsAtOnceMakeOneJob) {
  const auto store = open();
  std::vector<std::thread> threads(100);
  std::set<std::string> names;
  std::mutex mutex;
  for (std::thread& thread : threads)
    thread = std::thread([&] {
      const auto job = submit(*store, "", key("same", ""));
      const std::lock_guard lock(mutex);
      names.insert(job.name());
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(names.size(), 1u);
  EXPECT_EQ(store->list(0, 1000).first.size(), 1u);
}

TEST_F(JobStoreTest, WhoFindsARequestFindsItsJob) {
  const auto store = open();
  constexpr int kJobs = 200;
  const auto key_of = [](int i) { return key(fmt::format("id-{}", i), ""); };
  auto finds_all = std::async(std::launch::async, [&] {
    for (int i = 0; i < kJobs; ++i)
      while (!store->find_request(key_of(i))) std::this_thread::yield();
  });
  for (int i = 0; i < kJobs; ++i) submit(*store, "", key_of(i));
  EXPECT_NO_THROW(finds_all.get()) << "a request that is known before its job is listed";
}

TEST_F(JobStoreTest, CancellingFollowsTheStates) {
  const auto store = open();
  submit(*store, "a");
  submit(*store, "b");
  store->begin_attempt("a");
  EXPECT_EQ(store->cancel("b", {}).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(store->cancel("b", {}).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(store->cancel("a", {}).state(), v1::JOB_STATE_CANCELLING);
  EXPECT_TRUE(store->cancel_requested("a"));
  move(*store, "a", v1::JOB_STATE_RUNNING);  // prepared meanwhile
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_CANCELLING);
  move(*store, "a", v1::JOB_STATE_RECOVERING);  // the daemon stops
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_CANCELLED);
  submit(*store, "c");
  store->begin_attempt("c");
  move(*store, "c", v1::JOB_STATE_FAILED);
  EXPECT_THROW(store->cancel("c", {}), FailedPrecondition);
  EXPECT_THROW(move(*store, "c", v1::JOB_STATE_RUNNING), InternalError);
  EXPECT_EQ(store->get("c").state(), v1::JOB_STATE_FAILED);
}

TEST_F(JobStoreTest, AHeldJobWaitsForTheNextStartAndBlocksNobody) {
  {
    const auto store = open();
    submit(*store, "ran");
    submit(*store, "fresh");
    submit(*store, "next");
    store->begin_attempt("ran");
    publish_step(*store, "ran", 1);
    move(*store, "ran", v1::JOB_STATE_RECOVERING);
    store->hold("ran", v1::HOLD_CODE_NEEDS_OTHER_RANKS, "needs 2 ranks, the daemon has 3");
    store->hold("fresh", v1::HOLD_CODE_NEEDS_OTHER_RANKS, "needs 2 ranks, the daemon has 3");
    EXPECT_EQ(store->get("ran").state(), v1::JOB_STATE_HELD);
    EXPECT_EQ(store->get("ran").hold_reason(), "needs 2 ranks, the daemon has 3");
    EXPECT_EQ(store->wait_for_job(), "next");
    EXPECT_EQ(store->cancel("next", {}).state(), v1::JOB_STATE_CANCELLED);
    store->hold("next", v1::HOLD_CODE_NEEDS_OTHER_RANKS, "too late");
    EXPECT_EQ(store->get("next").state(), v1::JOB_STATE_CANCELLED);
  }
  const auto store = open();
  EXPECT_EQ(store->get("ran").state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(store->get("fresh").state(), v1::JOB_STATE_QUEUED);
  EXPECT_TRUE(store->get("ran").hold_reason().empty());
  EXPECT_EQ(store->wait_for_job(), "ran");
  EXPECT_EQ(store->begin_attempt("ran").attempt(), 2);
  EXPECT_EQ(store->begin_attempt("fresh").attempt(), 1);
}

TEST_F(JobStoreTest, AHeldJobCanBeCancelled) {
  const auto store = open();
  submit(*store, "a");
  store->hold("a", v1::HOLD_CODE_NEEDS_OTHER_RANKS, "needs 2 ranks, the daemon has 3");
  const v1::Job cancelled = store->cancel("a", {});
  EXPECT_EQ(cancelled.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(cancelled.hold_reason().empty());
}

TEST_F(JobStoreTest, WatchersGetEveryEventOnceInOrder) {
  const auto store = open();
  std::int64_t revision = submit(*store, "a").revision();
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  std::thread writer([&] {
    for (int i = 1; i <= 1000; ++i) {
      v1::StepMetrics metrics;
      metrics.set_step(i);
      store->publish_step("a", metrics);
    }
    move(*store, "a", v1::JOB_STATE_SUCCEEDED);
  });
  std::int64_t step = 0;
  bool ended = false;
  while (!ended) {
    for (const auto& event : store->events_after("a", revision)) {
      EXPECT_EQ(event.revision(), revision + 1);
      revision = event.revision();
      if (event.has_step()) {
        EXPECT_EQ(event.step().step(), ++step);
      }
      ended = event.has_job() && base::is_final(event.job().state());
    }
    std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(step, 1000);
}

TEST_F(JobStoreTest, SlowAndFutureWatchersAreTold) {
  const auto store = open();
  const auto first = submit(*store, "a").revision();
  store->begin_attempt("a");
  for (int i = 1; i <= 10'000; ++i) publish_step(*store, "a", i);
  while (store->get("a").step() < 10'000) std::this_thread::yield();  // told behind the first
  EXPECT_THROW(store->events_after("a", first), OutOfRange);
  EXPECT_THROW(store->events_after("a", 1 << 30), OutOfRange);
  const auto now = store->get("a").revision();
  EXPECT_TRUE(store->events_after("a", now).empty());
  store->close();
  EXPECT_THROW(store->events_after("a", now), Unavailable);
  EXPECT_EQ(store->wait_for_job(), std::nullopt);
}

TEST_F(JobStoreTest, SubscribersHearOfEventsAndOfTheClose) {
  const auto store = open();
  std::int64_t revision = submit(*store, "a").revision();
  submit(*store, "b");
  std::atomic<int> heard{0};
  std::vector<v1::JobEvent> events;
  {
    const auto subscriber = when_woken([&] {
      ++heard;
      for (auto& event : store->events_after("a", revision)) events.push_back(std::move(event));
      if (!events.empty()) revision = events.back().revision();
    });
    const Subscription subscription = store->subscribe("a", subscriber);
    EXPECT_THROW(store->subscribe("nobody", subscriber), NotFound);
    publish_step(*store, "b", 1);
    EXPECT_EQ(heard, 0);
    publish_step(*store, "a", 1);
    EXPECT_EQ(heard, 1);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].step().step(), 1);
    move(*store, "a", v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(heard, 2);
  }
  publish_step(*store, "a", 2);
  EXPECT_EQ(heard, 2);
  EXPECT_EQ(store->events_after("a", revision).size(), 1u);
  const auto late = when_woken([&] {
    EXPECT_THROW(store->events_after("a", revision + 1), Unavailable);
    ++heard;
  });
  const Subscription other = store->subscribe("a", late);
  store->close();
  EXPECT_EQ(heard, 3);
}

TEST_F(JobStoreTest, ListsPageByPage) {
  const auto store = open();
  for (int i = 0; i < 25; ++i) submit(*store, "");
  std::vector<std::string> names;
  std::int64_t position = 0;
  do {
    auto [jobs, next] = store->list(position, 10);
    for (const auto& job : jobs) names.push_back(job.name());
    position = next;
  } while (position > 0);
  EXPECT_EQ(names.size(), 25u);
  EXPECT_EQ(names.front(), "jobs/job-1");
  EXPECT_EQ(names.back(), "jobs/job-25");
}

}  // namespace
}  // namespace meshloom::control
