// SPDX-License-Identifier: Apache-2.0
// What the validations and samples of a job decide and tell, over real gRPC, with fake runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/train/config/validation_progress.h"
#include "daemon/train/files/message_json.h"
#include "tests/unit/control/fake_daemon.h"
#include "tests/unit/control/fake_manifest.h"
#include "tests/unit/control/status_info.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Steps = std::vector<std::int64_t>;

class JobValidationTest : public ::testing::Test {
 protected:
  void start() { daemon_ = std::make_unique<FakeDaemon>(folder_ / "state", plan_, 2); }
  void restart() {
    daemon_.reset();
    start();
  }
  /// Validated after every second step.
  static v1::SubmitJobRequest request(std::int64_t steps) {
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name("a");
    auto& run = *request.mutable_spec()->mutable_run();
    run.mutable_training()->set_steps(steps);
    run.mutable_validation()->set_interval(2);
    run.mutable_validation()->set_steps(1);
    return request;
  }
  void submit(const v1::SubmitJobRequest& request) {
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    const auto status =
        v1::JobService::NewStub(daemon_->channel())->SubmitJob(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  v1::Job run_to_end(const v1::SubmitJobRequest& request) {
    start();
    submit(request);
    return daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  }
  std::vector<nlohmann::json> metrics() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(folder_ / "state/jobs/a/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  Steps checkpoints() const { return checkpoint_steps(daemon_->state(), "a"); }
  std::string log() const {
    std::ifstream file(folder_ / "state/jobs/a/job.log");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  test::TempFolder folder_;
  FakePlan plan_;
  std::unique_ptr<FakeDaemon> daemon_;
};

void add_set(v1::RunConfig& run, const std::string& name) {
  run.mutable_validation()->add_sets()->set_name(name);
}

TEST_F(JobValidationTest, EverySetIsToldByItsName) {
  plan_.validation_loss = [](std::int64_t step, const std::string& set) {
    return (set == "books" ? 3.0 : set == "code" ? 2.0 : 5.0) - 0.1 * static_cast<double>(step);
  };
  auto with = request(4);
  add_set(*with.mutable_spec()->mutable_run(), "books");
  add_set(*with.mutable_spec()->mutable_run(), "code");
  const v1::Job job = run_to_end(with);
  ASSERT_EQ(job.last_validation().sets_size(), 2);
  EXPECT_EQ(job.last_validation().sets(0).set(), "books");
  EXPECT_DOUBLE_EQ(job.last_validation().sets(0).loss(), 2.6);
  EXPECT_DOUBLE_EQ(job.last_validation().sets(1).perplexity(), std::exp(1.6));
  EXPECT_DOUBLE_EQ(job.last_validation().perplexity(), std::exp(4.6));
  EXPECT_DOUBLE_EQ(job.first_validation().sets(0).loss(), 3.0);
  int validations = 0;
  for (const auto& line : metrics()) {
    if (!line.contains("validation_loss")) continue;
    ++validations;
    EXPECT_TRUE(line.contains("validation_loss_books") && line.contains("perplexity_code"));
  }
  EXPECT_EQ(validations, 3) << "before the first step, after 2 and 4";
}

TEST_F(JobValidationTest, StopsEarlyOnceTheLossNoLongerFalls) {
  plan_.validation_loss = [](std::int64_t step, const std::string& set) {
    return set.empty() ? 5.0 - static_cast<double>(step) : step <= 4 ? 3.0 - 0.5 * step : 2.0;
  };
  auto early = request(1000);
  add_set(*early.mutable_spec()->mutable_run(), "books");
  auto& stopping =
      *early.mutable_spec()->mutable_run()->mutable_training()->mutable_early_stopping();
  stopping.set_patience(3);
  stopping.set_validation_set("books");
  const v1::Job job = run_to_end(early);
  EXPECT_EQ(job.step(), 10);
  EXPECT_THAT(job.stopped_early(),
              HasSubstr("the validation loss on books has not fallen in 3 validations, the best is "
                        "1.0000 of step 4; it ends at step 10 of 1000"));
  EXPECT_THAT(job.notes(), Contains(job.stopped_early()));
  EXPECT_THAT(checkpoints(), ElementsAre(10)) << "saved as after a last step";
}

TEST_F(JobValidationTest, AJobThatEndsAnywayWasNotStoppedEarly) {
  plan_.validation_loss = [](std::int64_t, const std::string&) { return 1.0; };
  auto early = request(4);
  early.mutable_spec()->mutable_run()->mutable_training()->mutable_early_stopping()->set_patience(
      2);
  EXPECT_EQ(run_to_end(early).stopped_early(), "");
}

TEST_F(JobValidationTest, AResumedJobCountsOn) {
  plan_.validation_loss = [](std::int64_t, const std::string&) { return 1.0; };
  plan_.step_time = 20ms;
  auto early = request(1000);
  early.mutable_spec()->mutable_run()->mutable_training()->mutable_early_stopping()->set_patience(
      8);
  start();
  submit(early);
  for (const std::int64_t step : {4, 9}) {
    daemon_->wait_for_step("a", step);
    daemon_->stop();
    restart();
  }
  const v1::Job job = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.attempt(), 3);
  EXPECT_EQ(job.step(), 16) << "8 validations behind that of step 0";
}

TEST_F(JobValidationTest, SavesTheBestAtOnceAndKeepsThemInMind) {
  plan_.validation_loss = [](std::int64_t step, const std::string&) {
    return step == 4 ? 1.0 : step == 8 ? 2.0 : 9.0 - 0.1 * static_cast<double>(step);
  };
  auto best = request(12);
  best.mutable_spec()->mutable_run()->mutable_checkpoint()->set_keep_best(2);
  run_to_end(best);
  EXPECT_THAT(checkpoints(), ElementsAre(2, 4, 6, 8, 12)) << "the fake deletes none";
  v1::ValidationProgress progress;
  std::ifstream file(daemon_->state().checkpoints("a") / "step-12" / "progress.pb");
  ASSERT_TRUE(progress.ParseFromIstream(&file));
  ASSERT_EQ(progress.best_size(), 2);
  EXPECT_EQ(progress.best(0).step(), 4);
  EXPECT_EQ(progress.best(1).step(), 8);
}

TEST_F(JobValidationTest, WhatCouldNotBeSavedIsNoneOfTheBest) {
  plan_.validation_loss = [](std::int64_t step, const std::string&) {
    return step == 4 ? 1.0 : 9.0 - 0.1 * static_cast<double>(step);
  };
  plan_.fail_save_at_step = 4;
  auto best = request(6);
  best.mutable_spec()->mutable_run()->mutable_checkpoint()->set_keep_best(1);
  run_to_end(best);
  v1::ValidationProgress progress;
  std::ifstream file(daemon_->state().checkpoints("a") / "step-6" / "progress.pb");
  ASSERT_TRUE(progress.ParseFromIstream(&file));
  ASSERT_EQ(progress.best_size(), 1);
  EXPECT_EQ(progress.best(0).step(), 6);
}

TEST_F(JobValidationTest, ABestCheckpointThatFailsAtAnIntervalIsTriedOnce) {
  plan_.validation_loss = [](std::int64_t step, const std::string&) {
    return 9.0 - 0.1 * static_cast<double>(step);
  };
  plan_.fail_save_at_step = 4;
  auto best = request(6);
  best.mutable_spec()->mutable_run()->mutable_checkpoint()->set_keep_best(1);
  best.mutable_spec()->mutable_run()->mutable_checkpoint()->set_interval(4);
  const v1::Job job = run_to_end(best);
  const auto is_failure = [](const std::string& note) {
    return note.find("the checkpoint of step 4 failed") != std::string::npos;
  };
  EXPECT_EQ(std::count_if(job.notes().begin(), job.notes().end(), is_failure), 1);
}

TEST_F(JobValidationTest, WithoutALastCheckpointANoteSaysWhatIsLost) {
  auto none = request(5);
  none.mutable_spec()->mutable_run()->mutable_checkpoint()->set_last(false);
  none.mutable_spec()->mutable_run()->mutable_checkpoint()->set_interval(3);
  const v1::Job job = run_to_end(none);
  EXPECT_THAT(checkpoints(), ElementsAre(3));
  EXPECT_THAT(job.notes(),
              Contains(HasSubstr("no checkpoint of its last step, 5: run.checkpoint.last is false. "
                                 "Its weights are lost; the newest checkpoint is of step 3")));
}

TEST_F(JobValidationTest, AStoppedJobIsSavedEvenWithoutALastCheckpoint) {
  plan_.step_time = 5ms;
  start();
  auto none = request(100);
  none.mutable_spec()->mutable_run()->mutable_checkpoint()->set_last(false);
  submit(none);
  daemon_->wait_for_step("a", 3);
  daemon_->stop();
  EXPECT_GE(daemon_->store().get("a").checkpoint_step(), 3);
}

TEST_F(JobValidationTest, SamplesAreDrawnOnTheWayAndAtTheEnd) {
  auto drawn = request(6);
  auto& sample = *drawn.mutable_spec()->mutable_run()->mutable_sample();
  sample.set_interval(2);
  sample.set_prompt("ab");
  sample.add_prompts("cd");
  sample.mutable_params()->set_max_tokens(3);
  start();
  grpc::ClientContext context;
  submit(drawn);
  v1::WatchJobRequest watch;
  watch.set_name("a");
  const auto reader = v1::JobService::NewStub(daemon_->channel())->WatchJob(&context, watch);
  int samples = 0;
  for (v1::WatchJobResponse response; reader->Read(&response);)
    samples += response.event().has_sample() ? 1 : 0;
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_GE(samples, 2);
  const v1::Job job = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.sample(), "abuvw");
  ASSERT_EQ(job.samples_size(), 2);
  EXPECT_EQ(job.samples(0).step(), 6);
  EXPECT_EQ(job.samples(0).prompt(), "ab");
  EXPECT_EQ(job.samples(0).text(), "abuvw");
  EXPECT_EQ(job.samples(1).text(), "cdwxy");
  for (const int step : {2, 4, 6})
    EXPECT_THAT(log(), HasSubstr(fmt::format("sample at step {}: cdwxy", step)));
  for (const auto& line : metrics())
    if (line.contains("loss")) {
      EXPECT_DOUBLE_EQ(line["loss"], FakeRun::loss_at(line["step"]));
    }
  restart();
  EXPECT_EQ(daemon_->store().get("a").samples_size(), 2) << "after a restart";
}

TEST_F(JobValidationTest, MoreSamplesThanAJobKeepsAreRefused) {
  start();
  auto drawn = request(2);
  auto& sample = *drawn.mutable_spec()->mutable_run()->mutable_sample();
  for (int i = 0; i < 16; ++i) sample.add_prompts("ab");
  sample.mutable_params()->set_max_tokens(65'536);
  grpc::ClientContext context;
  v1::SubmitJobResponse response;
  const auto status =
      v1::JobService::NewStub(daemon_->channel())->SubmitJob(&context, drawn, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(info_of(status).reason(), "SAMPLES_TOO_LARGE");
  EXPECT_EQ(info_of(status).metadata().at("tokens"), "1048576");
  EXPECT_EQ(info_of(status).metadata().at("limit"), "524288");
  EXPECT_EQ(info_of(status).metadata().at("field"), "run.sample.params.max_tokens");
}

TEST_F(JobValidationTest, SamplesThatAreLongerThanTheirShareAreCut) {
  plan_.context_length = 1 << 20;
  auto drawn = request(2);
  auto& sample = *drawn.mutable_spec()->mutable_run()->mutable_sample();
  for (int i = 0; i < 8; ++i) sample.add_prompts(std::string(i == 1 ? 70'000 : 1000, 'a'));
  sample.mutable_params()->set_max_tokens(3);
  const v1::Job job = run_to_end(drawn);
  ASSERT_EQ(job.samples_size(), 8);
  EXPECT_EQ(job.samples(0).text().size(), 1003u);
  EXPECT_EQ(job.samples(1).text().size(), kMostSampleBytes / 8);
  EXPECT_THAT(job.notes(),
              Contains(HasSubstr("samples are cut: the 8 of a job are told in 524288")));
}

TEST_F(JobValidationTest, ListedCheckpointsSayWhichAreTheBest) {
  run_to_end(request(2));
  v1::ValidationProgress progress;
  for (const auto& [step, loss] : {std::pair{3, 1.5}, std::pair{2, 1.75}, std::pair{1, 2.0}}) {
    v1::BestCheckpoint& best = *progress.add_best();
    best.set_step(step);
    best.set_loss(loss);
  }
  for (const int step : {2, 3, 4}) {
    const auto folder = daemon_->state().checkpoints("a") / fmt::format("step-{}", step);
    std::filesystem::create_directories(folder);
    train::Manifest manifest;
    manifest.step = step;
    manifest.model_config = manifest.run_config = "{}";
    manifest.validation_progress = train::validation_progress_to_json(progress);
    std::ofstream(folder / train::kManifestName) << train::manifest_to_json(manifest);
  }
  const auto stub = v1::CheckpointService::NewStub(daemon_->channel());
  v1::ListCheckpointsResponse list;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->ListCheckpoints(&context, {}, &list).ok());
  }
  ASSERT_EQ(list.checkpoints_size(), 3);
  EXPECT_EQ(list.checkpoints(0).best(), 2);
  EXPECT_EQ(list.checkpoints(1).best(), 1);
  EXPECT_DOUBLE_EQ(list.checkpoints(1).validation_loss(), 1.5);
  EXPECT_EQ(list.checkpoints(2).best(), 0);
  v1::DeleteCheckpointRequest remove;
  remove.set_name("checkpoints/a/step-3");
  const auto removed = [&](const std::string& id, bool force) {
    remove.set_request_id(id);
    remove.set_force(force);
    grpc::ClientContext context;
    v1::DeleteCheckpointResponse response;
    return stub->DeleteCheckpoint(&context, remove, &response);
  };
  EXPECT_EQ(info_of(removed("one", false)).reason(), "CHECKPOINT_IS_BEST");
  EXPECT_TRUE(removed("two", true).ok());
}

}  // namespace
}  // namespace meshloom::control
