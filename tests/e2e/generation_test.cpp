// SPDX-License-Identifier: Apache-2.0
// Generation beside training: steps go on, a stop saves, and samples are what they are alone.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/daemon_fixture.h"
#include "v1/generate_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

using Clock = std::chrono::steady_clock;

class GenerationE2e : public DaemonTest {
 protected:
  /// Calls from `job` until the daemon or end() ends them; how often each got a token.
  class Storm {
   public:
    Storm(const std::string& address, const std::string& job, int calls)
        : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
          stub_(v1::GenerateService::NewStub(channel_)),
          contexts_(static_cast<std::size_t>(calls)),
          tokens_(static_cast<std::size_t>(calls)) {
      for (std::size_t i = 0; i < contexts_.size(); ++i)
        threads_.emplace_back([this, job, i] { run(job, i); });
    }
    ~Storm() { end(); }
    void end() {
      for (auto& context : contexts_) context.TryCancel();
      for (auto& thread : threads_) thread.join();
      threads_.clear();
    }
    int fewest() const {
      int fewest = 1 << 30;
      for (const auto& count : tokens_) fewest = std::min(fewest, count.load());
      return fewest;
    }

   private:
    void run(const std::string& job, std::size_t i) {
      v1::GenerateRequest request;
      request.set_job(job);
      request.set_prompt("in the ");
      request.mutable_params()->set_max_tokens(60'000);
      request.mutable_params()->set_seed(i);
      request.mutable_params()->set_past_context(true);
      const auto stream = stub_->Generate(&contexts_[i], request);
      v1::GenerateResponse response;
      while (stream->Read(&response)) ++tokens_[i];
      stream->Finish();
    }
    std::shared_ptr<grpc::Channel> channel_;
    std::unique_ptr<v1::GenerateService::Stub> stub_;
    std::vector<grpc::ClientContext> contexts_;
    std::vector<std::atomic<int>> tokens_;
    std::vector<std::thread> threads_;
  };
  std::int64_t step_of(const std::string& name) const {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    v1::GetJobResponse response;
    request.set_name(name);
    EXPECT_TRUE(jobs()->GetJob(&context, request, &response).ok());
    return response.job().step();
  }
  /// Steps a second over two seconds.
  double rate(const std::string& name) const {
    const auto begin = Clock::now();
    const std::int64_t from = step_of(name);
    std::this_thread::sleep_for(2s);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return static_cast<double>(step_of(name) - from) / seconds;
  }
  struct Drawn {
    std::vector<int> tokens;
    std::string seed, finish_reason;
    bool operator==(const Drawn&) const = default;
  };
  /// Each of `count` sequences.
  std::vector<Drawn> drawn_of(const std::string& job, const Arguments& how,
                              std::size_t count) const {
    Arguments arguments{"generate", "--job", job, "--json"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const auto result = client(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    std::vector<Drawn> all(count);
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
      const Json token = Json::parse(line);
      Drawn& drawn = all.at(token.value("index", 0));
      drawn.seed = std::to_string(token.value("seed", std::uint64_t{0}));
      drawn.finish_reason = token.value("finish_reason", "");
      if (!token.value("done", false)) drawn.tokens.push_back(token.value("token_id", 0));
    }
    return all;
  }
  std::string text_of(const std::string& job) const {
    const auto result = client({"generate", "--job", job, "--prompt", "in the ", "--max-tokens",
                                "300", "--seed", "7", "--past-context"});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  }
};

TEST_F(GenerationE2e, StepsGoOnAndAShutdownSavesUnderSixteenCalls) {
  start();
  submit_endless("fsdp2", "busy", 5);
  double calm = rate("busy");
  {
    Storm storm(address_, "busy", 16);
    ASSERT_TRUE(eventually(60s, [&] { return storm.fewest() > 0; })) << "calls take turns";
    const double stormy = rate("busy");
    storm.end();
    calm = std::min(calm, rate("busy"));  // what the machine gives may change meanwhile
    EXPECT_GT(stormy, 0.4 * calm) << "generation takes a third at most; calm " << calm;
  }
  Storm storm(address_, "busy", 16);
  ASSERT_TRUE(eventually(60s, [&] { return storm.fewest() > 0; }));
  const auto begin = Clock::now();
  ASSERT_EQ(client({"shutdown", "--wait", "20"}).exit_code, 0);
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_EQ(wait_for_end(), 0) << daemon_log();
  storm.end();
  const int last = step_losses("busy").rbegin()->first;
  EXPECT_TRUE(
      std::filesystem::exists(state_ / "jobs/busy/checkpoints" / fmt::format("step-{}", last)))
      << last;
}

TEST_F(GenerationE2e, AStopSavesHalfASecondAfterTheRunningStepWhateverIsAsked) {
  start();
  for (const std::string way : {"cancel", "shutdown"}) {
    submit_endless("dp2", way, 5);
    Storm storm(address_, way, 16);
    ASSERT_TRUE(eventually(60s, [&] { return storm.fewest() > 0; }));
    if (way == "cancel") {
      ASSERT_EQ(client({"job", "cancel", way}).exit_code, 0);
      ASSERT_TRUE(reaches(way, "cancelled"));
    } else {
      ASSERT_EQ(client({"shutdown", "--wait", "20"}).exit_code, 0);
    }
    storm.end();
    std::smatch found;
    const std::string log = daemon_log();
    const std::regex note(
        fmt::format(R"(job {}: saved at step \d+ in \S+ s, begun (\S+) s after)", way));
    ASSERT_TRUE(std::regex_search(log, found, note)) << log;
    RecordProperty(way + "_save_begun_after_s", found[1]);
    EXPECT_LT(std::stod(found[1]), 0.5) << way;
  }
  EXPECT_EQ(wait_for_end(), 0) << daemon_log();
}

TEST_F(GenerationE2e, ASampleIsTheSameWhateverElseGoesOn) {
  start();
  submit({}, "done");
  ASSERT_TRUE(reaches("done", "succeeded"));
  const std::string alone = text_of("done");
  EXPECT_GE(alone.size(), 300u);
  submit_endless("tp2", "busy", 5);
  {
    Storm storm(address_, "busy", 3);
    ASSERT_TRUE(eventually(60s, [&] { return storm.fewest() > 0; }));
    EXPECT_EQ(text_of("done"), alone);
  }
  const auto changed = client({"generate", "--job", "busy", "--prompt", "in the ", "--max-tokens",
                               "2000", "--seed", "7", "--past-context"});
  EXPECT_EQ(changed.exit_code, 0) << changed.errors;
  EXPECT_NE(changed.errors.find("The job trained meanwhile: weights of step"), std::string::npos)
      << changed.errors;
}

TEST_F(GenerationE2e, SeveralPromptsTogetherGetWhatEachGetsAlone) {
  start();
  TinyJob job;
  job.steps = 20;
  submit(job, "done");
  ASSERT_TRUE(reaches("done", "succeeded"));
  // So small a learning rate leaves the weights as they are: answers may be compared.
  job.steps = 10'000'000;
  job.optimizer = "{lr: 1.0e-30}";
  submit(job, "busy");
  ASSERT_TRUE(reaches_step("busy", 3));
  const Arguments prompts{"in the ", "a", "And it came to pass, ", "of", "the LORD ",
                          "x",       "y", "There was a man in ",   "go"};
  for (const std::string name : {"done", "busy"}) {
    Arguments many{"--seed", "7", "--max-tokens", "60"};
    for (const auto& prompt : prompts) many.insert(many.end(), {"--prompt", prompt});
    const auto together = drawn_of(name, many, prompts.size());
    EXPECT_EQ(together[0].seed, "7");
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto alone = drawn_of(
          name, {"--prompt", prompts[i], "--seed", together[i].seed, "--max-tokens", "60"}, 1);
      EXPECT_EQ(together[i], alone[0]) << prompts[i] << " of " << name;
      EXPECT_EQ(alone[0].tokens.size(), 60u);
    }
  }
}

TEST_F(GenerationE2e, SamplesAndFilesOfPromptsAreShownOneAfterTheOther) {
  start();
  TinyJob job;
  job.steps = 20;
  submit(job, "done");
  ASSERT_TRUE(reaches("done", "succeeded"));
  std::ofstream(state_ / "prompts.txt") << "in the \nof \n";
  const auto run = [&](const Arguments& more, const std::string& seed = "3") {
    Arguments arguments{"generate", "--job", "done", "--max-tokens", "20", "--seed", seed};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = client(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  };
  const auto seeds_of = [](const std::string& shown) {
    const std::regex heading("==> \\d+ of \\d+, seed (\\d+) <==\n");
    std::vector<std::string> seeds;
    for (std::sregex_iterator at(shown.begin(), shown.end(), heading), end; at != end; ++at)
      seeds.push_back((*at)[1]);
    return seeds;
  };
  const std::string file = (state_ / "prompts.txt").string();
  const std::string four = run({"--prompts-file", file, "--samples", "2"});
  const std::vector<std::string> seeds = seeds_of(four);
  ASSERT_EQ(seeds.size(), 4u) << four;
  EXPECT_EQ(seeds[0], "3");
  std::string expected;
  for (std::size_t i = 0; i < 4; ++i)
    expected += fmt::format("{}==> {} of 4, seed {} <==\n{}", i == 0 ? "" : "\n", i + 1, seeds[i],
                            run({"--prompt", i < 2 ? "in the " : "of "}, seeds[i]));
  EXPECT_EQ(four, expected) << "each as it is alone";
  const std::string ids = run({"--tokens", "105,110", "--tokens", "111"});
  ASSERT_EQ(seeds_of(ids), (std::vector<std::string>{"3", seeds[1]}));
  EXPECT_EQ(ids, "==> 1 of 2, seed 3 <==\n" + run({"--tokens", "105,110"}) + "\n==> 2 of 2, seed " +
                     seeds[1] + " <==\n" + run({"--tokens", "111"}, seeds[1]));
}

TEST_F(GenerationE2e, ASequenceEndsWithTheContextUnlessItIsToGoOn) {
  start(1);
  TinyJob job;
  job.steps = 2;
  job.extra = "  sample: {prompt: \"in the \", params: {max_tokens: 400}}\n";
  submit(job, "done");
  ASSERT_TRUE(reaches("done", "succeeded"));
  const Arguments how{"--prompt", "in the ", "--max-tokens", "200", "--seed", "7"};
  const auto with = [&](const std::string& more) {
    Arguments all = how;
    all.push_back(more);
    return all;
  };
  // Bytes, and a context of 128: one token comes behind it.
  const Drawn ended = drawn_of("done", how, 1)[0];
  EXPECT_EQ(ended.tokens.size(), 128u - 7 + 1);
  EXPECT_EQ(ended.finish_reason, "context");
  const Drawn whole = drawn_of("done", with("--past-context"), 1)[0];
  EXPECT_EQ(whole.finish_reason, "length");
  ASSERT_EQ(whole.tokens.size(), 200u);
  EXPECT_TRUE(std::equal(ended.tokens.begin(), ended.tokens.end(), whole.tokens.begin()));
  EXPECT_EQ(this->job("done")["samples"][0]["finish_reason"], "context");
  const auto shown = client({"job", "show", "done"});
  EXPECT_NE(shown.output.find("sample, the context is full\n"), std::string::npos) << shown.output;
}

}  // namespace
}  // namespace meshloom::e2e
