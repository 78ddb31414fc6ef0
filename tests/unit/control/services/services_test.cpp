// SPDX-License-Identifier: Apache-2.0
// Jobs and generation over real gRPC, with fake runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/control/fake_daemon.h"
#include "tests/unit/control/status_info.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class ServicesTest : public ::testing::Test {
 protected:
  void start(int world_size = 2) {
    daemon_ = std::make_unique<FakeDaemon>(folder_ / "state", plan_, world_size);
    jobs_ = v1::JobService::NewStub(daemon_->channel());
    generation_ = v1::GenerateService::NewStub(daemon_->channel());
  }
  static v1::SubmitJobRequest request(const std::string& name, std::int64_t steps) {
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name(name);
    auto& run = *request.mutable_spec()->mutable_run();
    run.mutable_training()->set_steps(steps);
    run.mutable_checkpoint()->set_interval(4);
    run.mutable_validation()->set_interval(5);
    run.mutable_validation()->set_steps(2);
    run.mutable_export_()->set_hf_folder("hf");
    run.mutable_sample()->set_prompt("ab");
    run.mutable_sample()->mutable_params()->set_max_tokens(3);
    return request;
  }
  grpc::Status submit(const v1::SubmitJobRequest& request, v1::Job* job = nullptr) {
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    const auto status = jobs_->SubmitJob(&context, request, &response);
    if (job) *job = response.job();
    return status;
  }
  static std::string reason_of(const grpc::Status& status) { return info_of(status).reason(); }
  grpc::Status generate(const v1::GenerateRequest& request,
                        std::vector<v1::GenerateResponse>* out) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 20s);
    const auto reader = generation_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) out->push_back(response);
    return reader->Finish();
  }

  test::TempFolder folder_;
  FakePlan plan_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::GenerateService::Stub> generation_;
};

TEST_F(ServicesTest, AJobRunsToItsEnd) {
  start();
  v1::Job job;
  ASSERT_TRUE(submit(request("first", 10), &job).ok());
  EXPECT_EQ(job.name(), "jobs/first");
  job = daemon_->wait_for("first", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.step(), 10);
  EXPECT_DOUBLE_EQ(job.last_step().loss(), FakeRun::loss_at(10));
  EXPECT_EQ(job.first_validation().step(), 0);
  EXPECT_EQ(job.last_validation().step(), 10);
  EXPECT_EQ(job.sample(), "abuvw");
  EXPECT_TRUE(std::filesystem::exists(job.hf_folder()));
  EXPECT_EQ(plan_.live_runs, 0);
  std::ifstream metrics(folder_ / "state/jobs/first/metrics.jsonl");
  int steps = 0;
  int validations = 0;
  for (std::string line; std::getline(metrics, line);)
    nlohmann::json::parse(line).contains("loss") ? ++steps : ++validations;
  EXPECT_EQ(steps, 10);
  EXPECT_EQ(validations, 3);
  for (const auto* kept : {"step-4", "step-8", "step-10"})
    EXPECT_TRUE(std::filesystem::exists(daemon_->state().checkpoints("first") / kept)) << kept;
}

TEST_F(ServicesTest, AJobWhoseWeightsADtypeDoesNotReachIsExportedInFloat32WithANote) {
  plan_.narrow_dtype = "float16";
  start();
  v1::SubmitJobRequest asked = request("first", 4);
  asked.mutable_spec()->mutable_run()->mutable_export_()->set_dtype("float16");
  ASSERT_TRUE(submit(asked).ok());
  const v1::Job job = daemon_->wait_for("first", v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(std::filesystem::exists(job.hf_folder()));
  const auto told = std::find_if(job.notes().begin(), job.notes().end(), [](const auto& note) {
    return note.find("float32, not in float16") != std::string::npos;
  });
  ASSERT_NE(told, job.notes().end());
  EXPECT_NE(told->find("h.weight has the value 1e+06"), std::string::npos) << *told;
}

TEST_F(ServicesTest, WatchBeginsWithThePresentAndEndsWithTheJob) {
  plan_.step_time = 2ms;
  start();
  ASSERT_TRUE(submit(request("first", 20)).ok());
  grpc::ClientContext context;
  v1::WatchJobRequest watch;
  watch.set_name("jobs/first");
  const auto reader = jobs_->WatchJob(&context, watch);
  v1::WatchJobResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(response.event().has_job());
  std::int64_t revision = response.event().revision();
  v1::Job last = response.event().job();
  std::int64_t step = last.step();
  while (reader->Read(&response)) {
    EXPECT_EQ(response.event().revision(), ++revision);
    if (response.event().has_step()) {
      EXPECT_EQ(response.event().step().step(), ++step);
    }
    if (response.event().has_job()) last = response.event().job();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(last.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(step, 20);
}

TEST_F(ServicesTest, CancelTakesEffectAtAStepBoundaryAndTheNextJobRuns) {
  plan_.step_time = 5ms;
  start();
  ASSERT_TRUE(submit(request("long", 100'000)).ok());
  ASSERT_TRUE(submit(request("next", 3)).ok());
  daemon_->wait_for("long", v1::JOB_STATE_RUNNING);
  std::this_thread::sleep_for(30ms);
  grpc::ClientContext context;
  v1::CancelJobRequest cancel;
  cancel.set_name("long");
  v1::CancelJobResponse response;
  ASSERT_TRUE(jobs_->CancelJob(&context, cancel, &response).ok());
  const auto job = daemon_->wait_for("long", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_GT(job.step(), 0);
  EXPECT_TRUE(std::filesystem::exists(daemon_->state().checkpoints("long") /
                                      ("step-" + std::to_string(job.step()))));
  EXPECT_EQ(daemon_->wait_for("next", v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ServicesTest, AFailedStepFailsTheJobAndTheDaemonServesOn) {
  plan_.fail_at_step = 5;
  start();
  ASSERT_TRUE(submit(request("bad", 10)).ok());
  const auto job = daemon_->wait_for("bad", v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.error().kind(), "NUMERIC_ERROR");
  EXPECT_NE(job.error().message().find("wte.weight"), std::string::npos);
  EXPECT_EQ(job.step(), 4);
  plan_.fail_at_step = -1;
  ASSERT_TRUE(submit(request("good", 3)).ok());
  EXPECT_EQ(daemon_->wait_for("good", v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ServicesTest, AStopSavesAndANewDaemonGoesOn) {
  plan_.step_time = 5ms;
  start();
  ASSERT_TRUE(submit(request("long", 60)).ok());
  ASSERT_TRUE(submit(request("queued", 3)).ok());
  daemon_->wait_for("long", v1::JOB_STATE_RUNNING);
  std::this_thread::sleep_for(40ms);
  daemon_->stop();
  const auto stopped = daemon_->store().get("long");
  EXPECT_EQ(stopped.state(), v1::JOB_STATE_RECOVERING);
  EXPECT_LT(stopped.step(), 60);
  daemon_.reset();
  start();
  const auto job = daemon_->wait_for("long", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.step(), 60);
  EXPECT_GT(job.epoch(), 1);
  EXPECT_EQ(job.first_validation().step(), 0);
  daemon_->wait_for("queued", v1::JOB_STATE_SUCCEEDED);
  std::ifstream metrics(folder_ / "state/jobs/long/metrics.jsonl");
  std::int64_t expected = 0;
  for (std::string line; std::getline(metrics, line);) {
    const auto entry = nlohmann::json::parse(line);
    if (entry.contains("loss")) {
      EXPECT_EQ(entry["step"].get<std::int64_t>(), ++expected);
    }
  }
  EXPECT_EQ(expected, 60);
}

TEST_F(ServicesTest, AStopWaitsForNoEvaluationWhichIsMadeUpFor) {
  plan_.batch_time = 5ms;
  start();
  auto long_one = request("long", 5);
  long_one.mutable_spec()->mutable_run()->mutable_validation()->set_steps(4000);
  for (const std::int64_t step : {0, 5}) {
    if (step == 0) {
      ASSERT_TRUE(submit(long_one).ok());
    } else {
      plan_.batch_time = 0ms;   // those of step 0
      plan_.step_time = 300ms;  // so that those of step 5 are slow again in time
      start();
      daemon_->wait_for_step("long", 1);
      plan_.batch_time = 5ms;
    }
    daemon_->wait_for_step("long", step);
    std::this_thread::sleep_for(200ms);
    const auto begin = std::chrono::steady_clock::now();
    daemon_->stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s) << "the whole evaluation takes 20 s";
    EXPECT_EQ(daemon_->store().get("long").state(), v1::JOB_STATE_RECOVERING);
    EXPECT_EQ(daemon_->store().get("long").step(), step);
    daemon_.reset();
  }
  plan_.batch_time = 0ms;
  plan_.step_time = 0ms;
  start();
  EXPECT_EQ(daemon_->wait_for("long", v1::JOB_STATE_SUCCEEDED).step(), 5);
  std::ifstream metrics(folder_ / "state/jobs/long/metrics.jsonl");
  std::vector<std::int64_t> validated;
  for (std::string line; std::getline(metrics, line);)
    if (const auto entry = nlohmann::json::parse(line); entry.contains("validation_loss"))
      validated.push_back(entry["step"]);
  EXPECT_EQ(validated, (std::vector<std::int64_t>{0, 5}));
}

TEST_F(ServicesTest, ALostRankLeavesTheJobToTheNextDaemon) {
  plan_.lose_rank_at_step = 6;
  start();
  ASSERT_TRUE(submit(request("a", 10)).ok());
  const auto job = daemon_->wait_for("a", v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RECOVERING);
  ASSERT_GE(job.notes_size(), 1);
  EXPECT_NE(job.notes(job.notes_size() - 1).find("rank 1 is missing"), std::string::npos);
  daemon_.reset();
  plan_.lose_rank_at_step = -1;
  start();
  EXPECT_EQ(daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ServicesTest, WrongRequestsAreRefusedWithReasonAndField) {
  start(1);
  struct Case {
    std::function<void(v1::SubmitJobRequest*)> spoil;
    const char* reason;
  };
  const Case cases[] = {
      {[](auto* r) { r->mutable_spec()->set_name("../etc"); }, "INVALID_ARGUMENT"},
      {[](auto* r) { r->mutable_spec()->set_name("jobs/a"); }, "INVALID_ARGUMENT"},
      {[](auto* r) { r->mutable_spec()->clear_run(); }, "INVALID_ARGUMENT"},
      {[](auto* r) { r->clear_spec(); }, "INVALID_ARGUMENT"},
      {[](auto* r) { r->mutable_spec()->mutable_run()->mutable_training()->set_steps(0); },
       "INVALID_ARGUMENT"},
      {[](auto* r) { r->mutable_spec()->mutable_run()->mutable_export_()->set_hf_folder("../x"); },
       "INVALID_ARGUMENT"},
      {[](auto* r) {
         r->mutable_spec()->mutable_run()->mutable_export_()->set_hf_folder("step-4");
       },
       "INVALID_ARGUMENT"},
      {[](auto* r) {
         r->mutable_spec()->mutable_run()->mutable_sample()->set_prompt(std::string(300'000, 'x'));
       },
       "INVALID_ARGUMENT"},
      {[](auto* r) {
         r->mutable_spec()->mutable_run()->mutable_sample()->mutable_params()->set_max_tokens(
             1 << 30);
       },
       "INVALID_ARGUMENT"},
      {[](auto* r) { r->set_request_id("a b"); }, "REQUEST_ID_INVALID"},
  };
  for (const auto& item : cases) {
    auto bad = request("a", 3);
    item.spoil(&bad);
    const auto status = submit(bad);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_EQ(reason_of(status), item.reason) << status.error_message();
  }
  auto only_check = request("a", 3);
  only_check.set_validate_only(true);
  EXPECT_TRUE(submit(only_check).ok());
  EXPECT_TRUE(daemon_->store().list(0, 10).first.empty());
  EXPECT_TRUE(submit(request("a", 3)).ok());
  EXPECT_EQ(submit(request("a", 3)).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(submit(only_check).error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(ServicesTest, ADryRunTakesNoRequestIdAndIsARepeatAfterItsSubmission) {
  start();
  auto job = request("a", 3), dry_run = job;
  for (auto* one : {&job, &dry_run}) one->set_request_id("sweep-1");
  dry_run.set_validate_only(true);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(submit(dry_run).ok());
    EXPECT_TRUE(submit(job).ok());
  }
  EXPECT_EQ(daemon_->store().list(0, 10).first.size(), 1u);
  dry_run.mutable_spec()->set_name("b");
  EXPECT_EQ(reason_of(submit(dry_run)), "REQUEST_ID_REUSED");
}

TEST_F(ServicesTest, GeneratesFromCheckpointExportAndRunningJob) {
  start();
  ASSERT_TRUE(submit(request("a", 10)).ok());
  daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  v1::GenerateRequest ask;
  ask.set_job("a");
  ask.set_prompt("x");
  ask.mutable_params()->set_max_tokens(5);
  std::vector<v1::GenerateResponse> out;
  ASSERT_TRUE(generate(ask, &out).ok());
  ASSERT_EQ(out.size(), 6u);
  EXPECT_EQ(out[1].text(), "B");
  EXPECT_TRUE(out[5].done());
  EXPECT_EQ(out[5].finish_reason(), "length");
  for (const auto* name : {"checkpoints/a/step-8", "checkpoints/a/hf"}) {
    ask.set_checkpoint(name);
    out.clear();
    EXPECT_TRUE(generate(ask, &out).ok()) << name;
    EXPECT_EQ(out.size(), 6u);
  }
  plan_.step_time = 2ms;
  ASSERT_TRUE(submit(request("b", 100'000)).ok());
  daemon_->wait_for("b", v1::JOB_STATE_RUNNING);
  ask.set_job("b");
  out.clear();
  ASSERT_TRUE(generate(ask, &out).ok());
  EXPECT_EQ(out[0].text(), std::string(1, static_cast<char>('a' + 'x' % 26)));
  ask.set_prompt(std::string(65, 'x'));
  EXPECT_EQ(reason_of(generate(ask, &out)), "PROMPT_TOO_LONG");
  EXPECT_EQ(daemon_->store().get("b").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(plan_.live_runs, 2);
}

TEST_F(ServicesTest, GenerationRefusesWhatItCannotDo) {
  plan_.vocab_size = 50257;
  start();
  ASSERT_TRUE(submit([] {
                auto job = request("a", 3);
                job.mutable_spec()->mutable_run()->clear_sample();
                return job;
              }())
                  .ok());
  daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  std::vector<v1::GenerateResponse> out;
  v1::GenerateRequest ask;
  EXPECT_EQ(generate(ask, &out).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ask.set_job("a");
  ask.set_prompt("text");
  const auto text = generate(ask, &out);
  EXPECT_EQ(reason_of(text), "TOKENIZER_NEEDED") << text.error_message();
  ask.clear_prompt();
  ask.add_token_ids(50257);
  EXPECT_EQ(reason_of(generate(ask, &out)), "TOKEN_OUT_OF_RANGE");
  for (int i = 0; i < 64; ++i) ask.add_token_ids(1);
  ask.set_token_ids(0, 1);
  EXPECT_EQ(reason_of(generate(ask, &out)), "PROMPT_TOO_LONG");
  for (int i = 0; i < 300'000; ++i) ask.add_token_ids(1);
  EXPECT_EQ(generate(ask, &out).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ask.mutable_token_ids()->Truncate(1);
  ask.set_token_ids(0, 11);
  ask.mutable_params()->set_max_tokens(2);
  ASSERT_TRUE(generate(ask, &out).ok());
  EXPECT_EQ(out.at(0).text(), "");
  ask.mutable_params()->set_temperature(-1);
  EXPECT_EQ(generate(ask, &out).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ask.clear_params();
  ask.set_checkpoint("checkpoints/a/../a");
  EXPECT_EQ(generate(ask, &out).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ask.set_checkpoint("checkpoints/a/step-99");
  EXPECT_EQ(generate(ask, &out).error_code(), grpc::StatusCode::NOT_FOUND);
  ask.set_hf_folder("nothing");
  EXPECT_EQ(generate(ask, &out).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServicesTest, AClientThatLeavesEndsItsGeneration) {
  start();
  ASSERT_TRUE(submit(request("a", 4)).ok());
  daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::GenerateRequest ask;
    ask.set_job("a");
    ask.set_prompt("x");
    ask.mutable_params()->set_max_tokens(60'000);
    const auto reader = generation_->Generate(&context, ask);
    v1::GenerateResponse response;
    reader->Read(&response);
    context.TryCancel();
    reader->Finish();
  }
  std::vector<v1::GenerateResponse> out;
  v1::GenerateRequest ask;
  ask.set_job("a");
  ask.set_prompt("x");
  ask.mutable_params()->set_max_tokens(2);
  grpc::Status status;
  for (int i = 0; i < 200; ++i) {
    status = generate(ask, &out);
    if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) break;
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST(StateDir, ASecondDaemonIsRefused) {
  const test::TempFolder folder;
  const StateDir first(folder / "state");
  try {
    const StateDir second(folder / "state");
    FAIL();
  } catch (const FailedPrecondition& error) {
    EXPECT_EQ(error.reason(), "STATE_DIR_LOCKED");
    EXPECT_EQ(error.metadata().at("owner"), fmt::format("pid {}", ::getpid()));
  }
}

TEST_F(ServicesTest, ASecondServerOnAPortIsRefused) {
  OpenJobStore store(folder_ / "journal", {folder_ / "jobs"});
  FakeAdmission admission(plan_, folder_.path());
  const StateDir state(folder_ / "state");
  JobServiceImpl service(store, admission, state);
  const GrpcServer first({resolve_listen_address("127.0.0.1:0", "listen"), {&service}, 8, true, 8});
  JobServiceImpl other(store, admission, state);
  for (const auto& address :
       {"127.0.0.1:" + std::to_string(first.port()), std::string("192.0.2.1:0")}) {
    try {
      const GrpcServer second({resolve_listen_address(address, "listen"), {&other}, 8, true, 8});
      FAIL() << address;
    } catch (const FailedPrecondition& error) {
      EXPECT_EQ(error.reason(), "CANNOT_LISTEN");
    }
  }
}

}  // namespace
}  // namespace meshloom::control
