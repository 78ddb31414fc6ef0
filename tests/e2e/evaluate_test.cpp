// SPDX-License-Identifier: Apache-2.0
// Losses of checkpoints and folders on data, computed by the ranks between jobs.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class EvaluateE2e : public DaemonTest {};

TEST_F(EvaluateE2e, TheJobsOwnValidationLossBitForBitOnEveryPlan) {
  start();
  TinyJob tiny;
  tiny.validation_interval = 20;
  tiny.extra = "  export: {hf_folder: hf}\n";
  for (const char* plan : {"dp2", "fsdp2", "tp2"}) {
    const auto made =
        client({"job", "submit", write_job(tiny), "--name", plan, "--plan", plan_path(plan)});
    ASSERT_EQ(made.exit_code, 0) << made.errors;
    ASSERT_TRUE(reaches(plan, "succeeded"));
    const double expected = job(plan)["last_validation"]["loss"];
    const Json own = evaluate({"--job", plan, "--batches", "2"});
    EXPECT_EQ(own["loss"], expected) << plan;
    EXPECT_EQ(own["source"], fmt::format("checkpoints/{}/step-20", plan));
    EXPECT_EQ(own["perplexity"], std::exp(expected));
    EXPECT_EQ(own["tokens"], 2 * 4 * 32);
    EXPECT_EQ(evaluate({"--checkpoint", fmt::format("checkpoints/{}/hf", plan), "--batches",
                        "2"})["loss"],
              expected);
  }
  // On another mesh the same within rounding; on all data; from a folder that knows no job.
  const double expected = job("tp2")["last_validation"]["loss"];
  EXPECT_NEAR(evaluate({"--job", "tp2", "--batches", "2", "--plan", plan_path("dp2")})["loss"],
              expected, 1e-5 * expected);
  ASSERT_EQ(
      client({"checkpoint", "download", "checkpoints/tp2/hf", (data_ / "hf").string()}).exit_code,
      0);
  const Json all = evaluate({"--hf-folder", "hf", "--data", "text.txt", "--seq", "32"});
  const auto bytes = static_cast<std::int64_t>(fs::file_size(data_ / "text.txt"));
  EXPECT_EQ(all["tokens"], bytes - 1) << "every byte but the first, which nothing predicts";
  EXPECT_NEAR(all["loss"], evaluate({"--job", "tp2", "--data", "text.txt"})["loss"], 1e-4);
  const auto text = client({"evaluate", "--job", "dp2"});
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_NE(text.output.find("perplexity  "), std::string::npos) << text.output;
  EXPECT_TRUE(!fs::exists(state_ / "evaluations") || fs::is_empty(state_ / "evaluations"));
}

TEST_F(EvaluateE2e, ATextThatFillsNoSampleIsAShortOne) {
  start();
  submit({}, "first");
  ASSERT_TRUE(reaches("first", "succeeded"));
  std::ofstream(data_ / "short.txt") << "in the ";
  std::ofstream(data_ / "one.txt") << "i";
  const Json alone = evaluate({"--job", "first", "--data", "short.txt", "--seq", "6"});
  EXPECT_EQ(alone["tokens"], 6);
  const double loss = alone["loss"];
  const Json padded = evaluate({"--job", "first", "--data", "short.txt", "--seq", "64"});
  EXPECT_EQ(padded["tokens"], 6);
  EXPECT_NEAR(padded["loss"], loss, 1e-5 * loss);
  const Json at_once =
      evaluate({"--job", "first", "--data", "short.txt", "--seq", "4", "--batch", "100000"});
  EXPECT_EQ(at_once["tokens"], 6);
  EXPECT_EQ(at_once["global_batch_size"], 2) << "as many samples as there are";
  // Refusals speak of what was asked.
  for (const Arguments& wrong : {Arguments{"--data", "one.txt"},
                                 {"--data", "nothing.txt"},
                                 {"--seq", "1000000"},
                                 {"--batch", "1000000000000"}}) {
    Arguments all{"evaluate", "--job", "first", "--json"};
    all.insert(all.end(), wrong.begin(), wrong.end());
    const auto result = client(all);
    EXPECT_NE(result.exit_code, 0) << wrong[1];
    EXPECT_EQ(result.output.find("run."), std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("training"), std::string::npos) << result.output;
  }
}

TEST_F(EvaluateE2e, ItWaitsForTheRanksAndRefusalsDisturbNobody) {
  start();
  submit({}, "first");
  ASSERT_TRUE(reaches("first", "succeeded"));
  submit_endless("dp2", "busy", 5);
  expect_refused_for({"evaluate", "--job", "first", "--no-wait"}, "RANKS_BUSY");
  expect_refused_for({"evaluate", "--job", "nobody"}, "JOB_NOT_FOUND");
  expect_refused_for({"evaluate", "--job", "first", "--data", "nothing.txt"}, "nothing.txt");
  expect_refused_for({"evaluate", "--hf-folder", "nothing", "--data", "text.txt"}, "nothing");
  expect_refused_for({"evaluate", "--job", "first", "--batch", "100000000"}, "global_batch_size");
  std::string wide;
  for (int i = 0; i < 500; ++i) wide += {static_cast<char>('a' + i % 20), '\0', '\0', '\0'};
  std::ofstream(data_ / "wide.bin") << wide;
  expect_refused_for({"evaluate", "--job", "first", "--data", "wide.bin"}, "TOKENS_TOO_WIDE");
  Process waiting({test::program("meshloom"), "--address", address_, "evaluate", "--job", "first"},
                  folder_ / "waiting.out", folder_ / "waiting.err");
  EXPECT_TRUE(eventually(20s, [&] {
    return read_file(folder_ / "waiting.err").find("behind jobs/busy") != std::string::npos;
  })) << read_file(folder_ / "waiting.err");
  EXPECT_EQ(job("busy")["state"], "running");
  EXPECT_EQ(client({"job", "cancel", "busy"}).exit_code, 0);
  EXPECT_EQ(waiting.wait(60s), 0) << read_file(folder_ / "waiting.err");
  EXPECT_NE(read_file(folder_ / "waiting.out").find("loss "), std::string::npos);
  submit({}, "after");
  EXPECT_TRUE(reaches("after", "succeeded")) << "the ranks are free again";
  EXPECT_EQ(step_losses("after"), step_losses("first"));
}

}  // namespace
}  // namespace meshloom::e2e
