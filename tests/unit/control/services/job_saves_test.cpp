// SPDX-License-Identifier: Apache-2.0
// Saves of a job that fail, and checkpoints that are damaged, with fake runs.
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/control/stores/found_damage.h"
#include "tests/unit/control/fake_daemon.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class JobSavesTest : public ::testing::Test {
 protected:
  void start() { daemon_ = std::make_unique<FakeDaemon>(folder_ / "state", plan_, 2); }
  static v1::SubmitJobRequest request(const std::string& name, std::int64_t steps) {
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name(name);
    auto& run = *request.mutable_spec()->mutable_run();
    run.mutable_training()->set_steps(steps);
    run.mutable_checkpoint()->set_interval(4);
    run.mutable_validation()->set_interval(5);
    run.mutable_validation()->set_steps(2);
    return request;
  }
  grpc::Status submit(const v1::SubmitJobRequest& request) {
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    return v1::JobService::NewStub(daemon_->channel())->SubmitJob(&context, request, &response);
  }

  test::TempFolder folder_;
  FakePlan plan_;
  std::unique_ptr<FakeDaemon> daemon_;
};

TEST_F(JobSavesTest, AFailedSaveCostsACheckpointOnly) {
  plan_.fail_save_at_step = 4;
  start();
  ASSERT_TRUE(submit(request("a", 10)).ok());
  const auto job = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.notes_size(), 2);
  EXPECT_NE(job.notes(0).find("dtype auto is"), std::string::npos);
  EXPECT_NE(job.notes(1).find("no space left"), std::string::npos);
}

TEST_F(JobSavesTest, SavesThatFailAreOneNoteWithACount) {
  plan_.fail_saves = true;
  plan_.on_step = [this](std::int64_t step) {
    if (step == 18) plan_.fail_saves = false;
  };
  start();
  ASSERT_TRUE(submit(request("a", 20)).ok());
  const auto job = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(job.notes_size(), 3) << job.DebugString();
  EXPECT_NE(job.notes(1).find("the checkpoint of step 4 failed"), std::string::npos);
  EXPECT_NE(job.notes(2).find("saved again at step 20: 4 checkpoints before it failed"),
            std::string::npos)
      << job.notes(2);
  EXPECT_EQ(job.failed_saves(), 4);
  EXPECT_NE(job.save_failure().find("step 16: no space left"), std::string::npos)
      << job.save_failure();
}

TEST_F(JobSavesTest, ALastSaveWithoutRoomHoldsTheJobAndAReleaseGoesOn) {
  plan_.fail_save_at_step = 10;
  start();
  ASSERT_TRUE(submit(request("a", 10)).ok());
  auto job = daemon_->wait_for("a", v1::JOB_STATE_HELD);
  ASSERT_EQ(job.state(), v1::JOB_STATE_HELD) << job.error().message();
  EXPECT_EQ(job.hold_code(), v1::HOLD_CODE_NO_SPACE);
  EXPECT_NE(job.hold_reason().find("job release a"), std::string::npos) << job.hold_reason();
  EXPECT_NE(job.hold_reason().find("checkpoint of step 8"), std::string::npos);
  EXPECT_EQ(job.checkpoint_step(), 8);
  // The queue goes on, and the disk is as full as before.
  ASSERT_TRUE(submit(request("b", 3)).ok());
  EXPECT_EQ(daemon_->wait_for("b", v1::JOB_STATE_SUCCEEDED).step(), 3);
  const std::int64_t attempt = job.attempt();
  daemon_->store().release("a", {});
  test::eventually([&] {
    job = daemon_->store().get("a");
    return job.state() == v1::JOB_STATE_HELD && job.attempt() > attempt;
  });
  EXPECT_EQ(job.attempt(), attempt + 1);
  plan_.fail_save_at_step = -1;
  daemon_->store().release("a", {});
  job = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.step(), 10);
  EXPECT_EQ(job.hold_reason(), "");
  EXPECT_EQ(job.checkpoint_step(), 10);
}

TEST_F(JobSavesTest, ABestCheckpointOfTheLastStepWithoutRoomHoldsTheJobToo) {
  plan_.fail_save_at_step = 10;
  start();
  v1::SubmitJobRequest best = request("a", 10);
  best.mutable_spec()->mutable_run()->mutable_checkpoint()->set_keep_best(1);
  ASSERT_TRUE(submit(best).ok());
  auto job = daemon_->wait_for("a", v1::JOB_STATE_HELD);
  ASSERT_EQ(job.state(), v1::JOB_STATE_HELD) << job.error().message();
  EXPECT_EQ(job.hold_code(), v1::HOLD_CODE_NO_SPACE);
  EXPECT_EQ(job.failed_saves(), 1);
  EXPECT_EQ(job.last_validation().step(), 10) << "what failed is the save of the best";
  EXPECT_EQ(plan_.live_runs, 0);
  plan_.fail_save_at_step = -1;
  daemon_->store().release("a", {});
  job = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.checkpoint_step(), 10);
}

TEST_F(JobSavesTest, SavesThatFailInSeveralAttemptsAreOneNote) {
  plan_.fail_saves = true;
  plan_.step_time = 5ms;
  start();
  ASSERT_TRUE(submit(request("a", 100)).ok());
  daemon_->wait_for_step("a", 6);
  daemon_->stop();
  const std::int64_t failed = daemon_->store().get("a").failed_saves();
  EXPECT_GE(failed, 2) << "that of step 4, and that of the stop";
  daemon_.reset();
  start();
  test::eventually([&] { return daemon_->store().get("a").failed_saves() > failed; });
  plan_.fail_saves = false;
  const auto job = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_GT(job.failed_saves(), failed);
  const auto is_of_a_step = [](const std::string& note) {
    return note.starts_with("the checkpoint of step ");
  };
  EXPECT_EQ(std::count_if(job.notes().begin(), job.notes().end(), is_of_a_step), 1)
      << job.DebugString();
}

TEST_F(JobSavesTest, ASaveThatFailsAtAPauseIsCounted) {
  plan_.fail_saves = true;
  plan_.step_time = 2ms;
  start();
  v1::SubmitJobRequest asked = request("a", 100'000);
  asked.mutable_spec()->mutable_run()->mutable_checkpoint()->clear_interval();
  ASSERT_TRUE(submit(asked).ok());
  daemon_->wait_for_step("a", 3);
  daemon_->store().pause("a", v1::PAUSE_CODE_CLIENT, {});
  EXPECT_TRUE(test::eventually([&] { return daemon_->store().get("a").failed_saves() == 1; }));
  daemon_->wait_for("a", v1::JOB_STATE_RUNNING);
  const auto notes = daemon_->store().get("a").notes();
  EXPECT_TRUE(std::none_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.starts_with("the checkpoint of step ");
  }));
  daemon_->store().cancel("a", {});
  EXPECT_EQ(daemon_->wait_for("a", v1::JOB_STATE_CANCELLED).failed_saves(), 2);
}

TEST_F(JobSavesTest, DamageThatAnAttemptFindsIsRememberedOfItsCheckpoint) {
  plan_.fail_save_at_step = 10;
  start();
  ASSERT_TRUE(submit(request("own", 10)).ok());
  ASSERT_EQ(daemon_->wait_for("own", v1::JOB_STATE_HELD).checkpoint_step(), 8);
  const auto own = daemon_->state().checkpoints("own");
  std::filesystem::path path = own / "step-8" / "weights.bin";
  plan_.on_create_job = [&] {
    throw DataLoss("a file is damaged", "CHECKPOINT_DAMAGED", {{"path", path.string()}});
  };
  daemon_->store().release("own", {});
  EXPECT_EQ(daemon_->wait_for("own", v1::JOB_STATE_FAILED).error().kind(), "DATA_LOSS");
  EXPECT_EQ(remembered_damage(own / "step-8"), "a file is damaged");
  EXPECT_EQ(remembered_damage(own / "step-4"), "");
  // A job without checkpoints of its own reads the one that it begins with.
  path = own / "step-4" / "weights.bin";
  v1::SubmitJobRequest next = request("next", 10);
  next.mutable_spec()->mutable_run()->mutable_checkpoint()->set_resume_from(
      "checkpoints/own/step-4");
  ASSERT_TRUE(submit(next).ok());
  EXPECT_EQ(daemon_->wait_for("next", v1::JOB_STATE_FAILED).error().kind(), "DATA_LOSS");
  EXPECT_EQ(remembered_damage(own / "step-4"), "a file is damaged");
  // Damage of other files is none of a checkpoint.
  forget_damage(own / "step-4");
  path = folder_ / "model.safetensors";
  next.mutable_spec()->set_name("third");
  ASSERT_TRUE(submit(next).ok());
  EXPECT_EQ(daemon_->wait_for("third", v1::JOB_STATE_FAILED).error().kind(), "DATA_LOSS");
  EXPECT_EQ(remembered_damage(own / "step-4"), "");
}

}  // namespace
}  // namespace meshloom::control
