// SPDX-License-Identifier: Apache-2.0
// Pause, resume, edits, limits and streams of lines over real gRPC, with fake runs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/eventually.h"
#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class JobChangesTest : public ::testing::Test {
 protected:
  void start() {
    daemon_ = std::make_unique<FakeDaemon>(folder_ / "state", plan_, 2);
    jobs_ = v1::JobService::NewStub(daemon_->channel());
  }
  void restart() {
    jobs_.reset();
    daemon_.reset();
    start();
  }
  template <typename Stub, typename Request, typename Response>
  grpc::Status call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (jobs_.get()->*method)(&context, request, response);
  }
  v1::JobSpec spec(const std::string& name, std::int64_t steps) {
    v1::JobSpec spec;
    spec.set_name(name);
    spec.mutable_run()->mutable_training()->set_steps(steps);
    // The learning rate of a step tells how many steps it goes by (rate_of).
    spec.mutable_run()->mutable_optimizer()->set_lr(1.0);
    v1::LrSchedulerConfig& schedule = *spec.mutable_run()->mutable_lr_scheduler();
    schedule.set_decay_type(v1::DECAY_TYPE_LINEAR);
    schedule.set_decay_ratio(1.0);
    spec.mutable_run()->mutable_checkpoint()->set_interval(50);
    return spec;
  }
  void submit(const v1::JobSpec& spec) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = spec;
    v1::SubmitJobResponse response;
    const grpc::Status status = call(&v1::JobService::Stub::SubmitJob, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  template <typename Request, typename Response, typename Method>
  v1::Job named(Method method, const std::string& name) {
    Request request;
    request.set_name(name);
    Response response;
    status_ = call(method, request, &response);
    return response.job();
  }
  v1::Job pause(const std::string& name) {
    return named<v1::PauseJobRequest, v1::PauseJobResponse>(&v1::JobService::Stub::PauseJob, name);
  }
  v1::Job resume(const std::string& name) {
    return named<v1::ResumeJobRequest, v1::ResumeJobResponse>(&v1::JobService::Stub::ResumeJob,
                                                              name);
  }
  v1::Job edit_steps(const std::string& name, std::int64_t steps) {
    v1::EditJobRequest request;
    request.set_name(name);
    request.mutable_spec()->mutable_run()->mutable_training()->set_steps(steps);
    request.add_fields("run.training.steps");
    v1::EditJobResponse response;
    status_ = call(&v1::JobService::Stub::EditJob, request, &response);
    return response.job();
  }
  std::vector<v1::StreamMetricsResponse> metrics(const std::string& name, std::int64_t after,
                                                 bool follow) {
    v1::StreamMetricsRequest request;
    request.set_name(name);
    request.set_after_revision(after);
    request.set_follow(follow);
    return read_all<v1::StreamMetricsResponse>(
        [&](grpc::ClientContext& context) { return jobs_->StreamMetrics(&context, request); });
  }
  std::vector<v1::StreamLogsResponse> logs(const std::string& name, std::int64_t after,
                                           bool follow) {
    v1::StreamLogsRequest request;
    request.set_name(name);
    request.set_after_revision(after);
    request.set_follow(follow);
    return read_all<v1::StreamLogsResponse>(
        [&](grpc::ClientContext& context) { return jobs_->StreamLogs(&context, request); });
  }
  template <typename Response, typename Open>
  std::vector<Response> read_all(const Open& open) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 30s);
    auto reader = open(context);
    std::vector<Response> lines;
    for (Response line; reader->Read(&line);) lines.push_back(line);
    status_ = reader->Finish();
    return lines;
  }
  /// Of the step after `done` ones of a job of `steps`.
  static double rate_of(std::int64_t done, std::int64_t steps) {
    return 1.0 - static_cast<double>(done) / static_cast<double>(steps);
  }
  std::vector<double> rates(const std::string& name) {
    std::vector<double> rates;
    for (const auto& line : metrics(name, 0, false)) {
      const auto entry = nlohmann::json::parse(line.line());
      if (entry.contains("lr")) rates.push_back(entry["lr"]);
    }
    return rates;
  }

  test::TempFolder folder_;
  FakePlan plan_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  grpc::Status status_;
};

TEST_F(JobChangesTest, APausedJobGivesItsRanksToTheNextAndGoesOnWhereItWas) {
  plan_.step_time = 1ms;
  start();
  submit(spec("a", 400));
  daemon_->wait_for_step("a", 20);
  submit(spec("b", 5));
  EXPECT_NE(pause("a").state(), v1::JOB_STATE_RUNNING);
  const v1::Job paused = daemon_->wait_for("a", v1::JOB_STATE_PAUSED);
  EXPECT_EQ(paused.state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(paused.checkpoint_step(), paused.step());
  EXPECT_GT(paused.ran_seconds(), 0);
  EXPECT_EQ(daemon_->wait_for("b", v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(daemon_->store().get("a").state(), v1::JOB_STATE_PAUSED);
  restart();
  EXPECT_EQ(daemon_->store().get("a").state(), v1::JOB_STATE_PAUSED);
  EXPECT_NE(resume("a").state(), v1::JOB_STATE_PAUSED);
  const v1::Job done = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED) << done.error().message();
  EXPECT_EQ(done.step(), 400);
  EXPECT_EQ(rates("a").size(), 400u);
}

TEST_F(JobChangesTest, APauseThatCannotSaveFailsAndTheJobGoesOn) {
  plan_.step_time = 1ms;
  start();
  submit(spec("a", 100'000));
  daemon_->wait_for_step("a", 60);
  plan_.fail_saves = true;
  pause("a");
  const auto noted = [&] {
    const v1::Job job = daemon_->store().get("a");
    for (const std::string& note : job.notes())
      if (note.find("is not paused") != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(test::eventually(noted));
  const v1::Job job = daemon_->store().get("a");
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  daemon_->wait_for_step("a", job.step() + 10);
  plan_.fail_saves = false;
  pause("a");
  EXPECT_EQ(daemon_->wait_for("a", v1::JOB_STATE_PAUSED).state(), v1::JOB_STATE_PAUSED);
}

TEST_F(JobChangesTest, AnEditReachesTheRanksAndHoldsAfterARestart) {
  plan_.step_time = 1ms;
  start();
  submit(spec("a", 1000));
  daemon_->wait_for_step("a", 70);
  const v1::Job edited = edit_steps("a", 300);
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  ASSERT_EQ(edited.edits_size(), 1);
  const std::int64_t after = edited.edits(0).after_step();
  EXPECT_GE(after, 70);
  daemon_->wait_for_step("a", after + 10);
  restart();  // goes on from a checkpoint
  EXPECT_EQ(daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  const std::vector<double> rates = this->rates("a");
  ASSERT_EQ(rates.size(), 300u);
  for (std::int64_t i = 0; i < 300; ++i)
    EXPECT_DOUBLE_EQ(rates[static_cast<std::size_t>(i)], rate_of(i, i < after ? 1000 : 300))
        << "step " << i + 1;
  edit_steps("a", 400);
  EXPECT_EQ(info_of(status_).reason(), "JOB_FINISHED");
}

// Short steps are two deep in flight: what follows the first of them must not come behind both.
TEST_F(JobChangesTest, AnEditDoesNotReachStepsThatHaveBegun) {
  constexpr std::int64_t kBatch = 3;
  v1::JobSpec job = spec("a", 40);
  job.mutable_run()->mutable_training()->set_global_batch_size(kBatch);
  v1::EditJobRequest request;
  request.set_name("a");
  request.add_fields("run.checkpoint.interval");
  std::int64_t after = 0;
  std::set<std::int64_t> steps;
  plan_.on_save = [&](std::int64_t step, const train::JobProgress& progress) {
    steps.insert(step);
    EXPECT_EQ(progress.data_position, step * kBatch) << "weights of step " << step;
  };
  plan_.on_step = [&](std::int64_t step) {
    if (step < 10 || step > 13) return;
    // A divisor of the step that is begun already, and of later ones.
    request.mutable_spec()->mutable_run()->mutable_checkpoint()->set_interval(step + 1);
    v1::EditJobResponse response;
    status_ = call(&v1::JobService::Stub::EditJob, request, &response);
    after = response.job().edits().rbegin()->after_step();
  };
  start();
  submit(job);
  const v1::Job done = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED) << done.error().message();
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_GE(after, 13);
  EXPECT_EQ(steps.count(28), 1u);
  EXPECT_EQ(steps.count(40), 1u);
  EXPECT_EQ(steps.count(14), after < 14 ? 1u : 0u);
}

TEST_F(JobChangesTest, LimitsEndAJob) {
  plan_.step_time = 2ms;
  start();
  v1::JobSpec few = spec("few", 1000);
  few.set_step_limit(7);
  submit(few);
  const v1::Job done = daemon_->wait_for("few", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.step(), 7);
  EXPECT_EQ(done.steps(), 7);
  EXPECT_EQ(done.checkpoint_step(), 7);
  v1::JobSpec brief = spec("brief", 100'000);
  brief.set_time_limit_seconds(1);
  submit(brief);
  const v1::Job ended = daemon_->wait_for("brief", v1::JOB_STATE_FAILED);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(ended.error().info().reason(), "TIME_LIMIT");
  EXPECT_EQ(ended.checkpoint_step(), ended.step()) << "it was saved";
  EXPECT_GE(ended.ran_seconds(), 1.0);
}

TEST_F(JobChangesTest, LinesGoOnFromAnyRevision) {
  plan_.step_time = 1ms;
  start();
  v1::JobSpec job = spec("a", 200);
  job.mutable_run()->mutable_validation()->set_interval(40);
  job.mutable_run()->mutable_validation()->set_steps(1);
  submit(job);
  daemon_->wait_for_step("a", 50);
  const auto now = metrics("a", 0, false);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  ASSERT_GE(now.size(), 50u);
  EXPECT_EQ(now.front().revision(), 1) << "the validation before the first step";
  const auto rest = metrics("a", now.back().revision(), true);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  std::vector<std::int64_t> expected, seen;
  for (std::int64_t step = 0; step <= 200; ++step) {
    if (step > 0) expected.push_back(2 * step);
    if (step % 40 == 0) expected.push_back(2 * step + 1);
  }
  for (const auto& part : {now, rest})
    for (const auto& line : part) seen.push_back(line.revision());
  EXPECT_EQ(seen, expected);
  const auto whole = logs("a", 0, true);
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  ASSERT_GE(whole.size(), 3u);
  EXPECT_NE(whole.back().line().find("succeeded at step 200"), std::string::npos);
  const auto tail = logs("a", whole.front().revision(), true);
  ASSERT_EQ(tail.size() + 1, whole.size());
  EXPECT_EQ(tail.front().line(), whole[1].line());
  for (const std::int64_t wrong : {whole.front().revision() - 1, whole.back().revision() + 1}) {
    logs("a", wrong, false);
    EXPECT_EQ(status_.error_code(), grpc::StatusCode::OUT_OF_RANGE) << wrong;
  }
  metrics("a", 1000, false);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  logs("b", 0, false);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(JobChangesTest, RefusalsDisturbNoTraining) {
  plan_.step_time = 1ms;
  start();
  submit(spec("a", 300));
  submit(spec("b", 3));
  daemon_->wait_for_step("a", 5);
  const auto reason = [&] { return info_of(status_).reason(); };
  resume("a");
  EXPECT_EQ(reason(), "JOB_NOT_PAUSED");
  pause("nothing");
  EXPECT_EQ(reason(), "JOB_NOT_FOUND");
  edit_steps("a", 0);
  EXPECT_EQ(reason(), "INVALID_ARGUMENT");
  edit_steps("a", 1);
  EXPECT_EQ(reason(), "STEP_PASSED");
  const auto edit = [&](const std::vector<std::string>& fields) {
    v1::EditJobRequest request;
    request.set_name("a");
    request.mutable_spec();
    for (const std::string& field : fields) request.add_fields(field);
    v1::EditJobResponse response;
    status_ = call(&v1::JobService::Stub::EditJob, request, &response);
    return reason();
  };
  EXPECT_EQ(edit({}), "INVALID_ARGUMENT");
  EXPECT_EQ(edit({"run.model.preset", "run.training.seed"}), "FIELD_FIXED");
  EXPECT_EQ(edit({"run.nothing"}), "INVALID_ARGUMENT");
  v1::MoveJobRequest move;
  v1::MoveJobResponse moved;
  move.set_name("a");
  move.set_first(true);
  status_ = call(&v1::JobService::Stub::MoveJob, move, &moved);
  EXPECT_EQ(reason(), "JOB_NOT_QUEUED");
  move.set_name("b");
  move.set_before("a");
  status_ = call(&v1::JobService::Stub::MoveJob, move, &moved);
  EXPECT_EQ(reason(), "JOB_NOT_QUEUED");
  move.clear_place();
  status_ = call(&v1::JobService::Stub::MoveJob, move, &moved);
  EXPECT_EQ(reason(), "INVALID_ARGUMENT");
  v1::LabelJobRequest label;
  v1::LabelJobResponse labelled;
  label.set_name("a");
  (*label.mutable_set())["Bad Key"] = "x";
  status_ = call(&v1::JobService::Stub::LabelJob, label, &labelled);
  EXPECT_EQ(reason(), "INVALID_ARGUMENT");
  v1::SubmitJobRequest wrong;
  *wrong.mutable_spec() = spec("c", 3);
  wrong.mutable_spec()->set_step_limit(-1);
  v1::SubmitJobResponse submitted;
  EXPECT_EQ(call(&v1::JobService::Stub::SubmitJob, wrong, &submitted).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const v1::Job done = daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(done.edits_size(), 0);
  EXPECT_EQ(done.attempt(), 1);
  const std::vector<double> rates = this->rates("a");
  ASSERT_EQ(rates.size(), 300u);
  for (std::int64_t i = 0; i < 300; ++i)
    EXPECT_DOUBLE_EQ(rates[static_cast<std::size_t>(i)], rate_of(i, 300)) << "step " << i + 1;
}

TEST_F(JobChangesTest, AResumedJobComesBeforeRunsThatWait) {
  plan_.step_time = 1ms;
  start();
  Client first(daemon_->channel()), second(daemon_->channel());
  ASSERT_TRUE(first.create().ok());
  first.wait_for(v1::RUN_STATE_READY);
  ASSERT_TRUE(second.create().ok());
  using Names = std::vector<std::string>;
  const auto ahead = [&] {
    const v1::Run run = second.get();
    return Names(run.ahead().begin(), run.ahead().end());
  };
  ASSERT_TRUE(test::eventually([&] { return ahead() == Names{first.run_.name()}; }));
  submit(spec("a", 100'000));
  pause("a");
  // The driver hears of it a moment later.
  EXPECT_TRUE(test::eventually([&] { return ahead() == Names{first.run_.name()}; }));
  resume("a");
  const Names expected = {first.run_.name(), "jobs/a"};
  test::eventually([&] { return ahead() == expected; });
  EXPECT_EQ(ahead(), expected);
  first.close();
  daemon_->wait_for_step("a", 5);
  EXPECT_EQ(second.get().state(), v1::RUN_STATE_QUEUED);
  // One that has run and is paused, too, and over a restart.
  pause("a");
  second.wait_for(v1::RUN_STATE_READY);
  daemon_->wait_for("a", v1::JOB_STATE_PAUSED);
  Client third(daemon_->channel());
  ASSERT_TRUE(third.create().ok());
  resume("a");
  test::eventually([&] { return third.get().ahead_size() == 2; });
  EXPECT_EQ(third.get().ahead(1), "jobs/a");
}

TEST_F(JobChangesTest, WhatAnEditHasMadeOtherThanItWasToldIsToldAgain) {
  plan_.step_time = 10ms;
  start();
  submit(spec("a", 1000));
  daemon_->wait_for_step("a", 80);
  const auto before = metrics("a", 0, false);
  ASSERT_GE(before.size(), 80u);
  const std::int64_t told = before.back().revision();
  plan_.fail_saves = true;  // it goes on from its checkpoint of step 50
  restart();
  plan_.fail_saves = false;
  pause("a");
  const v1::Job paused = daemon_->wait_for("a", v1::JOB_STATE_PAUSED);
  ASSERT_LT(paused.step(), 75);
  const auto repeated = metrics("a", told, false);
  EXPECT_TRUE(status_.ok()) << status_.error_message();
  EXPECT_EQ(repeated.size(), 0u) << "they are as they were told";
  edit_steps("a", 100);
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  resume("a");
  const auto rest = metrics("a", told, true);
  ASSERT_TRUE(status_.ok()) << status_.error_message();
  ASSERT_EQ(rest.size(), static_cast<std::size_t>(100 - paused.step()));
  std::int64_t step = paused.step(), revision = told;
  for (const auto& line : rest) {
    const auto entry = nlohmann::json::parse(line.line());
    EXPECT_DOUBLE_EQ(entry["lr"], rate_of(step, 100)) << line.line();
    EXPECT_EQ(entry["step"], ++step);
    EXPECT_GT(line.revision(), revision);
    revision = line.revision();
  }
  // From a revision of the edited job on, over a restart: none is told twice.
  restart();
  EXPECT_EQ(metrics("a", rest[9].revision(), false).size(), rest.size() - 10);
  EXPECT_EQ(metrics("a", told, false).size(), rest.size());
  metrics("a", revision + (std::int64_t{1} << 40), false);
  EXPECT_EQ(status_.error_code(), grpc::StatusCode::OUT_OF_RANGE) << "an edit that is to come";
}

TEST_F(JobChangesTest, AJobWhoseDeviceTheRanksLackIsHeldAndOneThatLeftItOpenGetsAnother) {
  plan_.on_refit = [](const v1::Job& job) -> std::optional<v1::RunConfig> {
    if (job.resolved().device() == "cuda:1")
      throw train::NeedsOtherDevices("run.device: host a has no cuda device", {});
    v1::RunConfig fitted = job.resolved();
    fitted.set_device("cpu");
    return fitted;
  };
  start();
  v1::JobSpec named = spec("named", 3), open = spec("open", 3);
  named.mutable_run()->set_device("cuda:1");
  open.mutable_run()->set_device("cuda");
  submit(named);
  submit(open);
  const v1::Job held = daemon_->wait_for("named", v1::JOB_STATE_HELD);
  ASSERT_EQ(held.state(), v1::JOB_STATE_HELD);
  EXPECT_EQ(held.hold_code(), v1::HOLD_CODE_NEEDS_OTHER_DEVICES);
  EXPECT_TRUE(held.hold_reason().starts_with("run.device: host a has no cuda device; "))
      << held.hold_reason();
  EXPECT_TRUE(held.hold_reason().ends_with("`meshloom job resume named --set device=auto`"))
      << held.hold_reason();
  const v1::Job ran = daemon_->wait_for("open", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ran.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ran.resolved().device(), "cpu");
  ASSERT_GE(ran.notes_size(), 1);
  EXPECT_NE(ran.notes(0).find("do not all have cuda: its device is cpu now"), std::string::npos)
      << ran.notes(0);
}

}  // namespace
}  // namespace meshloom::control
