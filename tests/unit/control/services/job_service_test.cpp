// SPDX-License-Identifier: Apache-2.0
// The ends of jobs over real gRPC, with fake runs.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/control/fake_daemon.h"
#include "tests/unit/control/status_info.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class JobServiceTest : public ::testing::Test {
 protected:
  void start() {
    daemon_ = std::make_unique<FakeDaemon>(folder_ / "state", plan_, 2);
    jobs_ = v1::JobService::NewStub(daemon_->channel());
  }
  grpc::Status submit(const std::string& name, std::int64_t steps) {
    v1::SampleConfig sample;
    sample.set_prompt("ab");
    sample.mutable_params()->set_max_tokens(3);
    return submit(name, steps, sample);
  }
  grpc::Status submit(const std::string& name, std::int64_t steps, const v1::SampleConfig& sample) {
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name(name);
    auto& run = *request.mutable_spec()->mutable_run();
    run.mutable_training()->set_steps(steps);
    run.mutable_checkpoint()->set_interval(4);
    run.mutable_validation()->set_interval(5);
    run.mutable_validation()->set_steps(2);
    *run.mutable_sample() = sample;
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    return jobs_->SubmitJob(&context, request, &response);
  }
  static std::string reason_of(const grpc::Status& status) { return info_of(status).reason(); }

  test::TempFolder folder_;
  FakePlan plan_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
};

TEST_F(JobServiceTest, SamplesOfAJobEndAsItsModelAndSayHow) {
  plan_.ends_with_context = true;
  plan_.context_length = 6;
  plan_.generation.end_tokens = {{'a' + 'z' % 26 + 2}};
  plan_.generation.temperature = 0.5;  // a default of requests to generate alone
  plan_.on_sample = [](const std::vector<train::SampleStart>& starts) {
    for (const train::SampleStart& start : starts) EXPECT_FALSE(start.params.has_temperature());
  };
  start();
  v1::SampleConfig sample;
  sample.set_prompt("az");
  sample.add_prompts("am");
  sample.add_prompts("abcde");
  sample.mutable_params()->set_max_tokens(4);
  ASSERT_TRUE(submit("a", 4, sample).ok());
  const v1::Job done = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(done.samples_size(), 3) << done.DebugString();
  EXPECT_EQ(done.samples(0).finish_reason(), "eos");
  EXPECT_EQ(done.samples(0).text().size(), 2u + 3);
  EXPECT_EQ(done.samples(1).finish_reason(), "length");
  EXPECT_EQ(done.samples(2).finish_reason(), "context");
  EXPECT_EQ(done.samples(2).text().size(), 5u + 2);
  ASSERT_TRUE(submit("b", 4).ok());
  const v1::Job one = daemon_->wait_for("b", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(one.samples_size(), 1) << "of its end alone";
  EXPECT_EQ(one.samples(0).finish_reason(), "eos");
  EXPECT_EQ(one.samples(0).text(), one.sample());
}

TEST_F(JobServiceTest, ACancelAndAStopWithoutRoomForALastCheckpointFailNoJob) {
  plan_.step_time = 2ms;
  start();
  const auto run_until_disk_is_full = [&](const std::string& name) {
    plan_.fail_saves = false;
    ASSERT_TRUE(submit(name, 100'000).ok());
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (daemon_->store().get(name).checkpoint_step() < 4 &&
           std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
    plan_.fail_saves = true;
    // Something is left to be saved.
    const auto unsaved = [&] {
      const v1::Job job = daemon_->store().get(name);
      return job.step() > job.checkpoint_step();
    };
    while (!unsaved() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  };
  const auto last_note = [&](const std::string& name) {
    const v1::Job job = daemon_->store().get(name);
    return job.notes_size() > 0 ? job.notes(job.notes_size() - 1) : "";
  };
  run_until_disk_is_full("cancelled");
  daemon_->store().cancel("cancelled", {});
  v1::Job job = daemon_->wait_for("cancelled", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED) << job.error().message();
  EXPECT_NE(last_note("cancelled").find("no space left"), std::string::npos);
  EXPECT_GE(job.checkpoint_step(), 4);
  EXPECT_GT(job.step(), 0);
  run_until_disk_is_full("stopped");
  daemon_->stop();
  job = daemon_->store().get("stopped");
  EXPECT_EQ(job.state(), v1::JOB_STATE_RECOVERING) << job.error().message();
  EXPECT_NE(last_note("stopped").find("no space left"), std::string::npos);
  EXPECT_EQ(job.stalled_attempts(), 0);
}

TEST_F(JobServiceTest, AMeasuredPeakIsToldBesideTheConfigAndNotInIt) {
  plan_.measured_peak_flops = 7e10;
  start();
  v1::SubmitJobRequest request;
  request.mutable_spec()->set_name("measured");
  v1::RunConfig& run = *request.mutable_spec()->mutable_run();
  run.mutable_training()->set_steps(3);
  run.mutable_mesh()->set_dp(2);
  run.mutable_mesh()->set_fsdp(1);
  run.mutable_mesh()->set_cp(1);
  run.mutable_mesh()->set_tp(1);
  grpc::ClientContext context;
  v1::SubmitJobResponse response;
  ASSERT_TRUE(jobs_->SubmitJob(&context, request, &response).ok());
  const v1::Job job = daemon_->wait_for("measured", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.resolved().training().peak_flops(), 0.0);
  EXPECT_TRUE(job.last_step().has_mfu());
  const std::string note = "mfu is a share of 7e+10 operations a second of a rank, as measured";
  EXPECT_EQ(std::count(job.notes().begin(), job.notes().end(), note), 1);
}

TEST_F(JobServiceTest, EndedJobsAreDeletedAndHeldOnesReleased) {
  start();
  ASSERT_TRUE(submit("done", 3).ok());
  daemon_->wait_for("done", v1::JOB_STATE_SUCCEEDED);
  v1::DeleteJobRequest remove;
  remove.set_name("jobs/done");
  remove.set_request_id("delete-1");
  for (int repeat = 0; repeat < 2; ++repeat) {
    grpc::ClientContext context;
    v1::DeleteJobResponse response;
    EXPECT_TRUE(jobs_->DeleteJob(&context, remove, &response).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(daemon_->state().job("done")));
  v1::GetJobRequest get;
  get.set_name("done");
  v1::GetJobResponse got;
  grpc::ClientContext context;
  EXPECT_EQ(jobs_->GetJob(&context, get, &got).error_code(), grpc::StatusCode::NOT_FOUND);

  ASSERT_TRUE(submit("done", 3).ok()) << "the name is free again";
  v1::ReleaseJobRequest release;
  release.set_name("done");
  v1::ReleaseJobResponse released;
  grpc::ClientContext release_context;
  const auto status = jobs_->ReleaseJob(&release_context, release, &released);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(reason_of(status), "JOB_NOT_HELD");
}

TEST_F(JobServiceTest, ListsLeaveOutWhatIsLarge) {
  start();
  ASSERT_TRUE(submit("a", 3).ok());
  daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  daemon_->store().add_note("a", "a note");
  grpc::ClientContext context;
  v1::ListJobsResponse list;
  ASSERT_TRUE(jobs_->ListJobs(&context, {}, &list).ok());
  ASSERT_EQ(list.jobs_size(), 1);
  EXPECT_EQ(list.jobs(0).spec().name(), "a");
  EXPECT_EQ(list.jobs(0).last_step().step(), 3);
  EXPECT_EQ(list.jobs(0).last_validation().step(), 3);
  EXPECT_FALSE(list.jobs(0).spec().has_run());
  EXPECT_FALSE(list.jobs(0).has_resolved());
  EXPECT_TRUE(list.jobs(0).sample().empty());
}

TEST_F(JobServiceTest, AConfigIsReadAsTheClientReadsFiles) {
  start();
  const auto read = [&](const std::string& text, v1::ReadConfigResponse* response) {
    v1::ReadConfigRequest request;
    request.set_text(text);
    request.set_name("my job.yaml");
    grpc::ClientContext context;
    return jobs_->ReadConfig(&context, request, response);
  };
  v1::ReadConfigResponse response;
  ASSERT_TRUE(read("name: x\nrun:\n  training: {steps: 7}\n", &response).ok());
  EXPECT_EQ(response.spec().name(), "x");
  EXPECT_EQ(response.spec().run().training().steps(), 7);
  EXPECT_EQ(response.lines().at("run.training.steps"), 3);
  ASSERT_TRUE(read(R"({"run": {"optimizer": {"lr": 1e-05}}})", &response).ok()) << "JSON is YAML";
  EXPECT_EQ(response.spec().run().optimizer().lr(), 1e-5);
  const auto wrong = read("run:\n  trainin: {}\n  optimizer: {learning_rate: 1}\n", &response);
  EXPECT_EQ(reason_of(wrong), "CONFIG_INVALID");
  EXPECT_NE(wrong.error_message().find("my job.yaml:2: run: unknown key \"trainin\"; did you mean"),
            std::string::npos)
      << wrong.error_message();
  EXPECT_NE(wrong.error_message().find("run.optimizer.lr"), std::string::npos);
  for (const std::string& text : {std::string(200'000, '['), std::string((256 << 10) + 1, ' '),
                                  std::string("run: &a [*a]"), std::string("name: x")})
    EXPECT_EQ(read(text, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace meshloom::control
