// SPDX-License-Identifier: Apache-2.0
// Generation beside a job that trains: its share of the time, its end, its sources.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "daemon/nn/models/presets.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/config/sampling_params.h"
#include "tests/unit/control/fake_daemon.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
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

TEST_F(GenerationServiceTest, EverySequenceHasItsIndexAndItsEnd) {
  start();
  submit("a", 1'000'000);
  wait_for_step("a", 1);
  v1::GenerateRequest request = ask("a", 5);
  request.clear_prompt();
  request.add_prompts()->set_prompt("abc");
  request.add_prompts()->add_token_ids('d');
  request.set_samples(2);
  const Answer answer = generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.responses.size(), 24u);
  std::vector<std::string> texts(4);
  std::vector<int> ends(4);
  for (const auto& response : answer.responses) {
    const auto index = static_cast<std::size_t>(response.index());
    ASSERT_LT(index, texts.size());
    EXPECT_EQ(ends[index], 0) << "nothing comes after the end";
    texts[index] += response.text();
    if (!response.done()) continue;
    ++ends[index];
    EXPECT_EQ(response.finish_reason(), "length");
  }
  // 'a' and the last token of the prompt, 'c' or 'd', modulo 26.
  EXPECT_EQ(texts, (std::vector<std::string>{"vwxyz", "vwxyz", "wxyz{", "wxyz{"}));
  EXPECT_EQ(ends, std::vector<int>(4, 1));
}

TEST_F(GenerationServiceTest, SeedsOfSequencesAreTheirOwnAndTold) {
  std::map<std::uint64_t, std::uint64_t> drawn_with;  // by place of the sequence in the sample
  plan_.on_sample = [&](const std::vector<train::SampleStart>& starts) {
    drawn_with.clear();
    for (std::size_t i = 0; i < starts.size(); ++i) drawn_with[i] = starts[i].params.seed();
  };
  start();
  std::filesystem::create_directories(folder_ / "state" / "hf");
  v1::GenerateRequest request = ask("", 3);
  request.set_hf_folder("hf");
  request.clear_prompt();
  request.add_prompts()->set_prompt("abc");
  request.add_prompts()->set_prompt("d");
  request.set_samples(8);
  std::set<std::uint64_t> all;
  for (const std::uint64_t seed : {1, 2, 3}) {
    request.mutable_params()->set_seed(seed);
    const Answer answer = generate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    std::set<std::uint64_t> told;
    for (const auto& response : answer.responses) {
      EXPECT_EQ(response.seed(), drawn_with.at(static_cast<std::uint64_t>(response.index())));
      told.insert(response.seed());
    }
    EXPECT_EQ(told.size(), 16u);
    EXPECT_EQ(drawn_with.at(0), seed);
    all.insert(told.begin(), told.end());
  }
  EXPECT_EQ(all.size(), 3u * 16) << "requests with near seeds share none";
}

TEST_F(GenerationServiceTest, TheModelsGenerationConfigGivesWhatIsLeftOut) {
  v1::SamplingParams drawn_with;
  plan_.on_sample = [&](const std::vector<train::SampleStart>& starts) {
    drawn_with = starts.at(0).params;
  };
  plan_.generation.end_tokens = {{'z', 'D'}};
  plan_.generation.temperature = 0.6;
  plan_.generation.top_k = 20;
  plan_.generation.notes = {"top_p is 3"};
  start();
  std::filesystem::create_directories(folder_ / "state" / "hf");
  v1::GenerateRequest request = ask("", 9);
  request.set_hf_folder("hf");
  const auto notes_of = [](const Answer& answer) {
    std::vector<std::string> notes;
    for (const auto& response : answer.responses) {
      EXPECT_TRUE(notes.empty() || response.notes().empty()) << "said once";
      notes.insert(notes.end(), response.notes().begin(), response.notes().end());
    }
    return notes;
  };
  Answer answer = generate(request);
  EXPECT_THAT(notes_of(answer),
              ::testing::ElementsAre("the model's generation_config.json gives temperature 0.6, "
                                     "top_k 20",
                                     "top_p is 3"));
  EXPECT_EQ(drawn_with.temperature(), 0.6);
  EXPECT_EQ(drawn_with.top_k(), 20);
  EXPECT_EQ(drawn_with.top_p(), 1.0);
  EXPECT_EQ(text_of(answer), "ABCD");
  EXPECT_EQ(answer.responses.back().finish_reason(), "stop");

  request.mutable_params()->set_temperature(1.5);
  request.mutable_params()->set_top_k(3);
  request.mutable_params()->set_max_tokens(4);
  answer = generate(request);
  EXPECT_THAT(notes_of(answer), ::testing::ElementsAre("top_p is 3"));
  EXPECT_EQ(drawn_with.temperature(), 1.5);
  EXPECT_EQ(drawn_with.top_k(), 3);
  EXPECT_EQ(answer.responses.back().finish_reason(), "stop") << "its last token is an end";
  request.mutable_stop()->set_ignore_eos(true);
  request.mutable_params()->set_max_tokens(6);
  answer = generate(request);
  EXPECT_EQ(text_of(answer), "ABCDEF");
  EXPECT_EQ(answer.responses.back().finish_reason(), "length");
}

TEST_F(GenerationServiceTest, ASequenceEndsWithTheContextUnlessItIsToGoOn) {
  plan_.ends_with_context = true;
  plan_.context_length = 6;
  start();
  std::filesystem::create_directories(folder_ / "state" / "hf");
  v1::GenerateRequest request = ask("", 20);
  request.set_hf_folder("hf");
  request.set_prompt("abcd");
  Answer answer = generate(request);
  EXPECT_EQ(text_of(answer), "ABC") << "one behind the six";
  EXPECT_EQ(answer.responses.back().finish_reason(), "context");
  request.set_prompt("abcdef");
  EXPECT_EQ(text_of(generate(request)), "A");
  request.mutable_params()->set_past_context(true);
  answer = generate(request);
  EXPECT_EQ(text_of(answer).size(), 20u);
  EXPECT_EQ(answer.responses.back().finish_reason(), "length");
}

TEST_F(GenerationServiceTest, StopStringsEndSequencesOnAllRanksAndNoOthers) {
  plan_.token_time = 2ms;
  start();
  submit("a", 1'000'000);
  wait_for_step("a", 1);
  v1::GenerateRequest request = ask("a", 200);
  request.clear_prompt();
  // They begin with s, u, v and z; the letters follow.
  for (const char* prompt : {"z", "b", "c", "g"}) request.add_prompts()->set_prompt(prompt);
  for (const char* stop : {"wx", "vwx"}) request.mutable_stop()->add_strings(stop);
  const Answer answer = generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  std::vector<std::string> texts(4), reasons(4);
  std::vector<int> tokens(4);
  for (const auto& response : answer.responses) {
    const auto index = static_cast<std::size_t>(response.index());
    EXPECT_EQ(reasons.at(index), "") << "nothing comes after the end";
    texts[index] += response.text();
    if (response.done())
      reasons[index] = response.finish_reason();
    else
      ++tokens[index];
  }
  EXPECT_EQ(reasons, (std::vector<std::string>{"stop", "stop", "stop", "length"}));
  EXPECT_EQ(texts[0], "stu");
  EXPECT_EQ(texts[1], "u");
  EXPECT_EQ(texts[2], "");
  EXPECT_EQ(tokens, (std::vector<int>{6, 4, 3, 200}));
  EXPECT_GE(plan_.sequences_ended, 3) << "the ranks drew no more of them";

  const auto refused = [&](const std::string& stop) {
    v1::GenerateRequest wrong = ask("a", 5);
    wrong.mutable_stop()->add_strings(stop);
    return generate(wrong).status.error_message();
  };
  EXPECT_THAT(refused("\xC3"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(refused(""), HasSubstr("expected 1 to"));
}

TEST_F(GenerationServiceTest, SequencesThatOutliveTheirJobGoOnEachWhereItWas) {
  plan_.step_time = 5ms;
  plan_.token_time = 5ms;
  start();
  submit("a", 60);
  wait_for_step("a", 1);
  v1::GenerateRequest request = ask("a", 100);
  request.clear_prompt();
  for (const char* prompt : {"z", "yy", "xxx"}) request.add_prompts()->set_prompt(prompt);
  const Answer answer = generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(daemon_->store().get("a").state(), v1::JOB_STATE_SUCCEEDED);
  std::vector<std::vector<std::int64_t>> drawn(3);
  for (const auto& response : answer.responses)
    if (!response.done())
      drawn.at(static_cast<std::size_t>(response.index())).push_back(response.token_id());
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(drawn[i].size(), 100u) << i;
    EXPECT_EQ(drawn[i][0], static_cast<std::int64_t>('s' - i));
    EXPECT_EQ(drawn[i][99], 'A' + 99 % 26) << "as the hundredth token, of a checkpoint";
  }
}

TEST_F(GenerationServiceTest, WithoutAPromptASequenceBeginsAsTheModelsTextsDo) {
  std::atomic<std::int64_t> first = -1;  // of both ranks
  std::atomic<std::size_t> tokens = 0;
  plan_.on_sample = [&](const std::vector<train::SampleStart>& starts) {
    first = starts.at(0).prompt.at(0);
    tokens = starts.at(0).prompt.size();
  };
  start();
  submit("a", 1'000'000);
  wait_for_step("a", 1);
  v1::GenerateRequest request = ask("a", 3);
  request.clear_prompt();
  const Answer answer = generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(first, '\n') << "of bytes";
  EXPECT_EQ(tokens, 1u);
  ASSERT_FALSE(answer.responses.empty());
  ASSERT_EQ(answer.responses[0].notes_size(), 1);
  EXPECT_THAT(answer.responses[0].notes(0),
              HasSubstr("without a prompt the sequence begins with a line end"));
  request.add_prompts();
  EXPECT_TRUE(generate(request).status.ok()) << "an empty one of one";
  request.add_token_ids(1);
  EXPECT_FALSE(generate(request).status.ok());
}

TEST(BeginningTokens, AreTheTokenizersElseTheConfigs) {
  train::PromptLimits limits{300, 64, 10, 1};
  std::string name;
  EXPECT_THROW(train::beginning_tokens(limits, ""), InvalidArgument) << "it names none";
  limits.beginning = 7;
  EXPECT_EQ(train::beginning_tokens(limits, "", &name), std::vector<std::int64_t>{7});
  EXPECT_THAT(name, HasSubstr("token 7"));
  limits.context_length = 0;
  EXPECT_THROW(train::beginning_tokens(limits, ""), Error) << "it does not generate";
  nn::ModelConfig config = nn::preset_config("gpt2_124m");
  EXPECT_EQ(train::prompt_limits(config).beginning, 50256);
  config.bos_token_id.reset();
  config.eos_token_id = 3;
  EXPECT_EQ(train::prompt_limits(config).beginning, 3) << "GPT-2's eos is its bos";
  config.eos_token_id = config.vocab_size;
  EXPECT_FALSE(train::prompt_limits(config).beginning.has_value());
}

TEST_F(GenerationServiceTest, WrongBatchesAreRefusedWithTheirField) {
  start();
  submit("a", 1'000'000);
  wait_for_step("a", 1);
  const auto refused = [&](const std::function<void(v1::GenerateRequest&)>& change) {
    v1::GenerateRequest request = ask("a", 5);
    request.clear_prompt();
    for (const char* prompt : {"a", "b", "c"}) request.add_prompts()->set_prompt(prompt);
    change(request);
    const grpc::Status status = generate(request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    return status.error_message();
  };
  EXPECT_THAT(refused([](auto& r) { r.set_prompt("a"); }), HasSubstr("prompts: give either"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_prompts(2)->clear_prompt(); }),
              HasSubstr("prompts[2].prompt: give either a prompt or token_ids"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_prompts(1)->add_token_ids(1); }),
              HasSubstr("prompts[1].prompt: give either a prompt or token_ids"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_prompts(1)->set_prompt(std::string(65, 'x')); }),
              HasSubstr("prompts[1].prompt: 65 tokens are more than the model's context of 64"));
  EXPECT_THAT(refused([](auto& r) {
                r.mutable_prompts(0)->clear_prompt();
                r.mutable_prompts(0)->add_token_ids(256);
              }),
              HasSubstr("prompts[0].token_ids: token id 256"));
  EXPECT_THAT(refused([](auto& r) { r.set_samples(-1); }),
              HasSubstr("samples: must be above 0, got -1"));
  EXPECT_THAT(refused([](auto& r) { r.set_samples(22); }),
              HasSubstr("samples: 3 prompts with 22 samples each are 66 sequences, more than 64"));
  EXPECT_THAT(refused([](auto& r) { r.set_samples(1 << 30); }), HasSubstr("samples: "));
  EXPECT_THAT(refused([](auto& r) {
                for (int i = 0; i < 62; ++i) r.add_prompts()->set_prompt("x");
              }),
              HasSubstr("prompts: 65 prompts"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_params()->set_max_tokens(30'000); }),
              HasSubstr("params.max_tokens: 30000 for each of 3 sequences are 90000"));
  EXPECT_THAT(refused([](auto& r) { r.mutable_prompts(0)->set_prompt(std::string(300'000, 'x')); }),
              HasSubstr("prompts: 300002 tokens of 3 sequences are more than the 262144"));
}

TEST_F(GenerationServiceTest, CachesAreCountedWhileTheirSequencesAreDrawn) {
  plan_.token_time = 2ms;
  start();
  submit("a", 1'000'000);
  wait_for_step("a", 1);
  // A position takes 10 bytes: 3 sequences of a prompt of 1 token with 20 more, then of the
  // context.
  plan_.cache_room = 3 * 21 * 10;
  v1::GenerateRequest request = ask("a", 20);
  request.set_samples(4);
  const grpc::Status full = generate(request).status;
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(full.error_message(), HasSubstr("840 bytes of 4 sequences"));
  request.set_samples(3);
  EXPECT_TRUE(generate(request).status.ok());
  const auto end = Clock::now() + 10s;
  while (plan_.cache_room != 3 * 21 * 10 && Clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(plan_.cache_room, 3 * 21 * 10) << "let go with the call";
  EXPECT_THAT(generate(ask("a", 100)).status.error_message(), HasSubstr("640 bytes of 1 seq"));
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
