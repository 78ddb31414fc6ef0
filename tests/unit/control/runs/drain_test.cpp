// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/drain.h"

#include "tests/support/eventually.h"
#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class DrainTest : public RunServiceTest {
 protected:
  static v1::JobSpec spec(const std::string& name, std::int64_t steps) {
    v1::JobSpec spec;
    spec.set_name(name);
    spec.mutable_run()->mutable_training()->set_steps(steps);
    return spec;
  }
  void submit(const std::string& name, std::int64_t steps) {
    daemon_->store().submit(spec(name, steps), spec(name, steps).run(), {});
  }
  /// The client of the same run of a daemon that was started again.
  Client client_of(const Client& before) {
    Client now = client();
    now.run_ = before.run_;
    now.token_ = before.token_;
    return now;
  }
  bool becomes(v1::DrainState state) {
    return test::eventually([&] { return daemon_->drain().state().state == state; });
  }
};

TEST_F(DrainTest, TheJobIsSavedNothingBeginsAndUndrainGoesOn) {
  plan_.step_time = 1ms;
  start();
  EXPECT_EQ(daemon_->drain().state().state, v1::DRAIN_STATE_ACTIVE);
  submit("a", 300);
  submit("b", 3);
  daemon_->wait_for_step("a", 5);
  daemon_->drain().begin("a kernel update");
  EXPECT_TRUE(becomes(v1::DRAIN_STATE_DRAINED));
  v1::Job a = daemon_->store().get("a");
  EXPECT_EQ(a.state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(a.pause_code(), v1::PAUSE_CODE_DRAIN);
  EXPECT_EQ(a.checkpoint_step(), a.step());
  submit("c", 3);
  Client waiting = with_run();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(daemon_->store().get("b").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(daemon_->store().get("c").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(waiting.get().state(), v1::RUN_STATE_QUEUED);
  restart();
  EXPECT_EQ(daemon_->drain().state().state, v1::DRAIN_STATE_DRAINED);
  EXPECT_EQ(daemon_->drain().state().reason, "a kernel update");
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(daemon_->store().get("b").state(), v1::JOB_STATE_QUEUED);
  waiting = client_of(waiting);
  EXPECT_TRUE(waiting.close().ok()) << "it came before the jobs";
  EXPECT_EQ(daemon_->drain().end(), std::vector<std::string>{"a"});
  EXPECT_EQ(daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED).step(), 300);
  for (const char* id : {"b", "c"})
    EXPECT_EQ(daemon_->wait_for(id, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(daemon_->drain().state().state, v1::DRAIN_STATE_ACTIVE);
}

TEST_F(DrainTest, ARunIsSavedAndClosedAsWhereItsLeaseEnds) {
  start();
  Client run = with_run();
  run.wait_for(v1::RUN_STATE_READY);
  run.forward_backward(1, {2, 3});
  run.optim_step(2);
  EXPECT_EQ(run.wait(2).state(), v1::OPERATION_STATE_SUCCEEDED);
  daemon_->drain().begin("");
  EXPECT_TRUE(becomes(v1::DRAIN_STATE_DRAINED));
  const v1::Run closed = run.wait_for(v1::RUN_STATE_CLOSED);
  EXPECT_EQ(closed.cause().info().reason(), "DRAINED");
  ASSERT_EQ(closed.saved_size(), 1);
  EXPECT_NE(closed.saved(0).name().find("/states/lease-1"), std::string::npos);
  EXPECT_EQ(closed.saved(0).next_seq(), 3);
  daemon_->drain().end();
  v1::RunSpec again;
  again.set_state(closed.saved(0).name());
  Client next = with_run(again);
  EXPECT_EQ(next.wait_for(v1::RUN_STATE_READY).step(), 1);
}

TEST_F(DrainTest, AClientsPauseOutlastsIt) {
  plan_.step_time = 1ms;
  start();
  submit("a", 100'000);
  daemon_->wait_for_step("a", 5);
  daemon_->drain().begin("");
  EXPECT_TRUE(becomes(v1::DRAIN_STATE_DRAINED));
  daemon_->store().pause("a", v1::PAUSE_CODE_CLIENT, {});
  EXPECT_TRUE(daemon_->drain().end().empty());
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(daemon_->store().get("a").state(), v1::JOB_STATE_PAUSED);
}

TEST_F(DrainTest, WhatCannotBeSavedGoesOnAndIsSaidAndAnotherDrainTriesAgain) {
  start();
  Client run = with_run();
  run.wait_for(v1::RUN_STATE_READY);
  run.forward_backward(1, {2, 3});
  run.optim_step(2);
  run.wait(2);
  plan_.fail_saves = true;  // the disk is full
  daemon_->drain().begin("");
  const auto noted = [&] {
    const v1::Run now = run.get();
    for (const std::string& note : now.notes())
      if (note.find("could not be saved and goes on") != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(test::eventually(noted));
  EXPECT_EQ(run.get().state(), v1::RUN_STATE_READY);
  EXPECT_EQ(daemon_->drain().state().state, v1::DRAIN_STATE_DRAINING);
  EXPECT_EQ(daemon_->drain().state().has_ranks, run.run_.name());
  run.get_weight(3);
  EXPECT_EQ(weight(run.wait(3)), -5.0) << "nothing is lost";
  plan_.fail_saves = false;
  daemon_->drain().begin("");
  EXPECT_TRUE(becomes(v1::DRAIN_STATE_DRAINED));
  const v1::Run closed = run.wait_for(v1::RUN_STATE_CLOSED);
  ASSERT_EQ(closed.saved_size(), 1);
  EXPECT_EQ(closed.saved(0).next_seq(), 4);
  EXPECT_EQ(closed.cause().info().reason(), "DRAINED");
}

TEST_F(DrainTest, AJobThatCannotBeSavedGoesOnUntilAnotherDrain) {
  plan_.step_time = 1ms;
  start();
  submit("a", 100'000);
  daemon_->wait_for_step("a", 5);
  plan_.fail_saves = true;
  daemon_->drain().begin("");
  daemon_->wait_for_step("a", daemon_->store().get("a").step() + 20);
  daemon_->wait_for("a", v1::JOB_STATE_RUNNING);
  EXPECT_EQ(daemon_->drain().state().state, v1::DRAIN_STATE_DRAINING);
  EXPECT_EQ(daemon_->drain().state().has_ranks, "jobs/a");
  plan_.fail_saves = false;
  daemon_->drain().begin("");
  EXPECT_TRUE(becomes(v1::DRAIN_STATE_DRAINED));
  EXPECT_EQ(daemon_->store().get("a").pause_code(), v1::PAUSE_CODE_DRAIN);
}

}  // namespace
}  // namespace meshloom::control
