// SPDX-License-Identifier: Apache-2.0
// Jobs from submission to their end.
#include <fmt/format.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

using JobsE2e = DaemonTest;

TEST_F(JobsE2e, TrainsExportsAndSamplesOnTwoRanks) {
  start();
  TinyJob tiny;
  tiny.steps = 60;
  tiny.validation_interval = 30;
  tiny.checkpoint_interval = 20;
  tiny.extra =
      "  export: {hf_folder: hf}\n  sample: {prompt: \"in the \", params: {max_tokens: 20}}\n";
  const auto result = client({"job", "submit", write_job(tiny), "--follow", "--name", "first"});
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_NE(result.output.find("step 60/60"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("step 0: validation loss"), std::string::npos);

  const Json done = job("first");
  EXPECT_EQ(done["state"], "succeeded");
  EXPECT_NEAR(done["first_validation"]["loss"].get<double>(), std::log(256.0), 0.5);
  EXPECT_LT(done["last_validation"]["loss"].get<double>(), 4.0);
  EXPECT_EQ(done["sample"].get<std::string>().rfind("in the ", 0), 0u);
  EXPECT_TRUE(fs::exists(fs::path(done["hf_folder"].get<std::string>()) / "model.safetensors"));

  std::ifstream metrics(state_ / "jobs/first/metrics.jsonl");
  int steps = 0;
  for (std::string line; std::getline(metrics, line);) {
    const Json entry = Json::parse(line);
    if (!entry.contains("loss")) continue;
    EXPECT_EQ(entry["step"].get<int>(), ++steps);
    for (const auto* key : {"grad_norm", "lr", "tokens_per_second", "memory_bytes", "time",
                            "elapsed", "job", "attempt", "seconds_forward"})
      EXPECT_TRUE(entry.contains(key)) << key;
  }
  EXPECT_EQ(steps, 60);

  const Json checkpoints = client_json({"checkpoint", "list", "--job", "first"})["checkpoints"];
  ASSERT_EQ(checkpoints.size(), 3u);
  EXPECT_EQ(checkpoints[1]["name"], "checkpoints/first/step-60");
  EXPECT_EQ(checkpoints[2]["name"], "checkpoints/first/hf");
}

TEST_F(JobsE2e, QueuedJobsRunOneAfterTheOther) {
  start();
  TinyJob tiny;
  tiny.steps = 100;
  submit(tiny, "one");
  submit(tiny, "two");
  ASSERT_TRUE(reaches("two", "succeeded"));
  const Json one = job("one");
  const Json two = job("two");
  EXPECT_EQ(one["state"], "succeeded");
  EXPECT_EQ(one["daemon_epoch"].get<int>() + 1, two["daemon_epoch"].get<int>());
  EXPECT_EQ(one["last_step"]["loss"], two["last_step"]["loss"])
      << "the same job gives the same loss";
  EXPECT_EQ(client_json({"job", "list"})["jobs"].size(), 2u);
}

TEST_F(JobsE2e, CancelEndsAtAStepAndTheQueueGoesOn) {
  start();
  TinyJob endless;
  endless.steps = 10'000'000;
  submit(endless, "endless");
  submit({}, "next");
  ASSERT_TRUE(reaches_step("endless", 5));
  Process follow({test::program("meshloom"), "--address", address_, "job", "watch", "endless"},
                 folder_ / "follow");
  ASSERT_TRUE(eventually(20s, [&] { return !read_file(folder_ / "follow").empty(); }));
  EXPECT_EQ(client({"job", "cancel", "endless"}).exit_code, 0);
  EXPECT_EQ(follow.wait(30s), 4);
  EXPECT_TRUE(reaches("endless", "cancelled"));
  EXPECT_TRUE(reaches("next", "succeeded"));
  EXPECT_EQ(client({"job", "cancel", "endless"}).exit_code, 0) << "cancelling again is harmless";
  EXPECT_EQ(client({"job", "cancel", "next"}).exit_code, 1);
}

TEST_F(JobsE2e, CtrlCInFollowDetachesAndTheJobGoesOn) {
  start(1);
  TinyJob long_job;
  long_job.steps = 10'000'000;
  submit(long_job, "long");
  Process follow({test::program("meshloom"), "--address", address_, "job", "watch", "long"},
                 folder_ / "follow");
  ASSERT_TRUE(eventually(
      20s, [&] { return read_file(folder_ / "follow").find("step ") != std::string::npos; }));
  follow.signal(SIGINT);
  EXPECT_EQ(follow.wait(10s), 130);
  EXPECT_NE(read_file(folder_ / "follow").find("job cancel long"), std::string::npos);
  EXPECT_EQ(job("long")["state"], "running");
}

TEST_F(JobsE2e, AHuggingFaceFolderReadBackGivesTheSameLoss) {
  start();
  TinyJob first;
  first.steps = 40;
  first.validation_interval = 40;
  first.extra = "  export: {hf_folder: hf}\n";
  submit(first, "first");
  ASSERT_TRUE(reaches("first", "succeeded"));
  const auto download =
      client({"checkpoint", "download", "checkpoints/first/hf", (data_ / "model").string()});
  ASSERT_EQ(download.exit_code, 0) << download.errors;
  EXPECT_EQ(client({"checkpoint", "download", "checkpoints/first/hf", (data_ / "model").string()})
                .exit_code,
            2);

  TinyJob second;
  second.steps = 1;
  second.validation_interval = 1;
  second.model = "{hf_folder: model}";
  submit(second, "second");
  ASSERT_TRUE(reaches("second", "succeeded"));
  EXPECT_EQ(job("second")["first_validation"]["loss"], job("first")["last_validation"]["loss"]);
}

TEST_F(JobsE2e, GeneratesFromEverySourceAndTheSameForTheSameSeed) {
  start();
  TinyJob first;
  first.steps = 40;
  first.extra = "  export: {hf_folder: hf}\n";
  submit(first, "first");
  ASSERT_TRUE(reaches("first", "succeeded"));
  const Arguments how{"--prompt", "in the ", "--max-tokens", "30", "--seed", "5", "--top-k", "20"};
  const auto generate = [&](Arguments source) {
    Arguments arguments{"generate"};
    arguments.insert(arguments.end(), source.begin(), source.end());
    arguments.insert(arguments.end(), how.begin(), how.end());
    const auto result = client(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  };
  const std::string text = generate({"--job", "first"});
  EXPECT_EQ(text.rfind("in the ", 0), 0u);
  EXPECT_GE(text.size(), 30u);
  EXPECT_EQ(generate({"--checkpoint", "checkpoints/first/step-40"}), text);
  EXPECT_EQ(generate({"--checkpoint", "checkpoints/first/hf"}), text);
  ASSERT_EQ(client({"checkpoint", "download", "checkpoints/first/hf", (data_ / "model").string()})
                .exit_code,
            0);
  EXPECT_EQ(generate({"--hf-folder", "model"}), text);

  TinyJob endless;
  endless.steps = 10'000'000;
  submit(endless, "endless");
  ASSERT_TRUE(reaches_step("endless", 3));
  EXPECT_FALSE(generate({"--job", "endless"}).empty()) << "between steps of a running job";
  EXPECT_EQ(job("endless")["state"], "running");
}

}  // namespace
}  // namespace meshloom::e2e
