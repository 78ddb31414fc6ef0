// SPDX-License-Identifier: Apache-2.0
// Generation beside a job that trains: its share of the time, its end, its sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/control/fake_daemon.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class GenerationServiceTest : public ::testing::Test {
 protected:
  void start() {
    daemon_ = std::make_unique<FakeDaemon>(folder_ / "state", plan_, 2);
    jobs_ = v1::JobService::NewStub(daemon_->channel());
    generation_ = v1::GenerateService::NewStub(daemon_->channel());
  }
  void submit(const std::string& name, std::int64_t steps) {
    grpc::ClientContext context;
    v1::SubmitJobRequest request;
    v1::SubmitJobResponse response;
    request.mutable_spec()->set_name(name);
    auto& run = *request.mutable_spec()->mutable_run();
    run.mutable_training()->set_steps(steps);
    run.mutable_checkpoint()->set_interval(1'000'000);
    ASSERT_TRUE(jobs_->SubmitJob(&context, request, &response).ok());
  }
  static v1::GenerateRequest ask(const std::string& job, int tokens) {
    v1::GenerateRequest request;
    request.set_job(job);
    request.set_prompt("z");
    request.mutable_params()->set_max_tokens(tokens);
    return request;
  }
  struct Answer {
    std::vector<v1::GenerateResponse> responses;
    grpc::Status status;
  };
  Answer generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 60s);
    Answer answer;
    const auto stream = generation_->Generate(&context, request);
    v1::GenerateResponse response;
    while (stream->Read(&response)) answer.responses.push_back(response);
    answer.status = stream->Finish();
    return answer;
  }
  std::int64_t step_of(const std::string& job) { return daemon_->store().get(job).step(); }
  void wait_for_step(const std::string& job, std::int64_t step) {
    const auto end = Clock::now() + 30s;
    while (step_of(job) < step && Clock::now() < end) std::this_thread::sleep_for(1ms);
    ASSERT_GE(step_of(job), step);
  }
  /// Seconds in which the job does `steps` more.
  double seconds_for(const std::string& job, std::int64_t steps) {
    const std::int64_t from = step_of(job);
    const auto begin = Clock::now();
    wait_for_step(job, from + steps);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  static std::string text_of(const Answer& answer) {
    std::string text;
    for (const auto& response : answer.responses) text += response.text();
    return text;
  }

  test::TempFolder folder_;
  FakePlan plan_;
  std::unique_ptr<FakeDaemon> daemon_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::GenerateService::Stub> generation_;
};

TEST_F(GenerationServiceTest, StepsGoOnUnderSixteenCallsAndAStopIsQuick) {
  plan_.step_time = 10ms;
  plan_.token_time = 10ms;
  start();
  submit("a", 1'000'000);
  wait_for_step("a", 5);
  const double calm = seconds_for("a", 50);
  std::vector<std::thread> calls;
  std::vector<Answer> answers(16);
  for (auto& answer : answers) calls.emplace_back([&] { answer = generate(ask("a", 60'000)); });
  seconds_for("a", 10);
  const double stormy = seconds_for("a", 100) / 2;
  EXPECT_LT(stormy, calm * 2) << "a third of the time is 1.5 times as long";
  const auto begin = Clock::now();
  daemon_->stop();
  EXPECT_LT(Clock::now() - begin, 5s);
  for (auto& call : calls) call.join();
  for (const auto& answer : answers) {
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE)
        << answer.status.error_message();
    EXPECT_GT(answer.responses.size(), 0u) << "calls take turns";
  }
  const v1::Job job = daemon_->store().get("a");
  EXPECT_EQ(job.state(), v1::JOB_STATE_RECOVERING);
  EXPECT_TRUE(std::filesystem::exists(daemon_->state().checkpoints("a") /
                                      ("step-" + std::to_string(job.step()))));
}

TEST_F(GenerationServiceTest, TellsTheStepOfTheWeights) {
  plan_.step_time = 2ms;
  plan_.token_time = 2ms;
  start();
  submit("a", 1'000'000);
  wait_for_step("a", 2);
  const Answer answer = generate(ask("a", 20));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.responses.size(), 21u);
  EXPECT_GE(answer.responses[0].weights_step(), 2);
  EXPECT_GT(answer.responses[19].weights_step(), answer.responses[0].weights_step());
  EXPECT_EQ(answer.responses[3].text(), "v");
}

TEST_F(GenerationServiceTest, ASampleThatOutlivesItsJobGoesOnWithItsCheckpoint) {
  plan_.step_time = 5ms;
  plan_.token_time = 5ms;
  start();
  submit("a", 60);
  wait_for_step("a", 1);
  const Answer answer = generate(ask("a", 100));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.responses.size(), 101u);
  EXPECT_EQ(daemon_->store().get("a").state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(answer.responses[0].token_id(), 's');
  EXPECT_EQ(answer.responses[99].token_id(), 'A' + 99 % 26) << "as the hundredth token";
  EXPECT_EQ(answer.responses[99].weights_step(), 7);
  EXPECT_EQ(answer.responses[100].finish_reason(), "length");
}

TEST_F(GenerationServiceTest, CallsShareSourcesAndFewAreLoadedAtOnce) {
  plan_.token_time = 2ms;
  start();
  constexpr int kFolders = 4;
  for (int i = 0; i < kFolders; ++i)
    std::filesystem::create_directories(folder_ / "state" / std::to_string(i));
  std::atomic<int> most{0};
  std::atomic<bool> over{false};
  std::thread watcher([&] {
    while (!over) {
      most = std::max(most.load(), plan_.sources.load());
      std::this_thread::sleep_for(200us);
    }
  });
  std::vector<std::thread> calls;
  for (int i = 0; i < 16; ++i)
    calls.emplace_back([&, i] {
      v1::GenerateRequest request = ask("", 10);
      request.set_hf_folder(std::to_string(i % kFolders));
      const Answer answer = generate(request);
      EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
      EXPECT_EQ(text_of(answer), "ABCDEFGHIJ");
    });
  for (auto& call : calls) call.join();
  over = true;
  watcher.join();
  EXPECT_GT(most, 0);
  EXPECT_LE(most, static_cast<int>(SourceCache::kMostLoaded));
  EXPECT_LT(plan_.sources_made, 16);
  const auto end = Clock::now() + 10s;
  while (plan_.sources > 0 && Clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(plan_.sources, 0) << "a source lives as long as a call holds it";
}

TEST_F(GenerationServiceTest, ASourceThatCannotBeLoadedIsNoHindrance) {
  start();
  v1::GenerateRequest request = ask("", 3);
  request.set_hf_folder("nothing");
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(generate(request).status.error_code(), grpc::StatusCode::NOT_FOUND);
  std::filesystem::create_directories(folder_ / "state" / "nothing");
  EXPECT_TRUE(generate(request).status.ok());
}

}  // namespace
}  // namespace meshloom::control
