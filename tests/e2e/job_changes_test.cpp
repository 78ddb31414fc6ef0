// SPDX-License-Identifier: Apache-2.0
// Jobs that are paused, edited, moved and labelled, over kills of the daemon; drains and plans.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

class JobChangesE2e : public DaemonTest {
 protected:
  static TinyJob long_job() {
    TinyJob job;
    job.steps = 800;
    job.validation_interval = 300;
    job.checkpoint_interval = 100;
    job.extra = "  lr_scheduler: {warmup_steps: 10}\n  export: {hf_folder: hf}\n";
    return job;
  }
  void expect_equal(const std::string& name, const std::string& other) {
    ASSERT_TRUE(reaches(name, "succeeded", 120s)) << job(name).dump(2);
    EXPECT_EQ(step_losses(name), step_losses(other));
    EXPECT_EQ(job(name)["last_validation"], job(other)["last_validation"]);
    EXPECT_EQ(read_file(state_ / "jobs" / name / "hf/model.safetensors"),
              read_file(state_ / "jobs" / other / "hf/model.safetensors"));
  }
  std::map<int, double> rates(const std::string& name) {
    std::map<int, double> rates;
    std::ifstream metrics(state_ / "jobs" / name / "metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) {
      const Json entry = Json::parse(line);
      if (entry.contains("lr")) rates[entry["step"]] = entry["lr"];
    }
    return rates;
  }
  int run(const Arguments& arguments) {
    const auto result = client(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
    return result.exit_code;
  }
};

TEST_F(JobChangesE2e, APauseOverAKillAndRefusalsChangeNoLoss) {
  start();
  TinyJob longer = long_job();
  longer.steps = 6000;  // it trains while requests are refused
  submit(longer, "whole");
  ASSERT_TRUE(reaches("whole", "succeeded", 120s));
  submit(longer, "paused");
  submit({}, "behind");
  ASSERT_TRUE(reaches_step("paused", 150));
  run({"job", "pause", "paused"});
  ASSERT_TRUE(reaches("paused", "paused"));
  ASSERT_TRUE(reaches("behind", "succeeded")) << "it has the ranks now";
  run({"job", "label", "paused", "team=x", "stage=2"});
  kill_everything();
  start();
  EXPECT_EQ(job("paused")["state"], "paused");
  EXPECT_EQ(job("paused")["spec"]["labels"], Json({{"stage", "2"}, {"team", "x"}}));
  run({"job", "resume", "paused"});
  ASSERT_TRUE(reaches_step("paused", 200));
  expect_refused_for({"job", "resume", "nothing"}, "JOB_NOT_FOUND");
  expect_refused_for({"job", "edit", "paused", "run.training.seed=4"}, "FIELD_FIXED");
  expect_refused_for({"job", "edit", "paused", "run.training.steps=20"}, "STEP_PASSED");
  expect_refused_for({"job", "edit", "paused", "run.lr_scheduler.warmup_steps=500"}, "STEP_PASSED");
  expect_refused_for({"job", "edit", "paused", "run.lr_scheduler.decay_ratio=7"}, "decay_ratio");
  expect_refused_for({"job", "edit", "paused", "run.nothing=7"}, "nothing");
  expect_refused_for({"job", "move", "paused", "--first"}, "JOB_NOT_QUEUED");
  expect_refused_for({"job", "label", "paused", "Bad=1"}, "Bad");
  expect_refused_for({"job", "submit", write_job({}), "--name", "x", "--label", "no"}, "KEY=VALUE");
  EXPECT_EQ(job("paused")["state"], "running");
  expect_equal("paused", "whole");
  EXPECT_EQ(job("paused")["edits"].size(), 0u);
  const Json labelled = client_json({"job", "list", "--label", "team=x"});
  ASSERT_EQ(labelled["jobs"].size(), 1u);
  EXPECT_EQ(labelled["jobs"][0]["name"], "jobs/paused");
}

TEST_F(JobChangesE2e, AnEditHoldsFromItsStepOnAlsoOverAKill) {
  start();
  TinyJob endless = long_job();
  endless.steps = 2000;
  submit(endless, "edited");
  ASSERT_TRUE(reaches_step("edited", 120));
  run({"job", "edit", "edited", "run.training.steps=600", "run.lr_scheduler.decay_type=linear",
       "run.checkpoint.interval=50"});
  const Json edited = job("edited");
  ASSERT_EQ(edited["edits"].size(), 1u) << edited.dump(2);
  const int after = edited["edits"][0]["after_step"];
  EXPECT_EQ(edited["steps"], 600);
  kill_everything();  // the newest checkpoint is one before the edit
  start();
  ASSERT_TRUE(reaches("edited", "succeeded", 120s)) << job("edited").dump(2);
  EXPECT_EQ(job("edited")["step"], 600);
  const std::map<int, double> seen = rates("edited");
  ASSERT_EQ(seen.size(), 600u);
  submit(endless, "reference");
  ASSERT_TRUE(reaches_step("reference", after + 1));
  run({"job", "cancel", "reference"});
  ASSERT_TRUE(reaches("reference", "cancelled"));
  const auto losses = step_losses("edited"), expected = step_losses("reference");
  for (int step = 1; step <= after; ++step)
    EXPECT_EQ(losses.at(step), expected.at(step)) << "step " << step;
  const double lr = 3e-3, span = 600 - 10;
  for (int step = after + 1; step <= 600; ++step) {
    const double factor = 0.1 + 0.9 * (1.0 - (step - 1 - 10) / span);
    ASSERT_NEAR(seen.at(step), lr * factor, 1e-9) << "step " << step;
  }
}

TEST_F(JobChangesE2e, TheQueueIsMovedAndLinesAreRead) {
  start();
  TinyJob endless;
  endless.steps = 10'000'000;
  submit(endless, "first");
  ASSERT_TRUE(reaches_step("first", 5));
  for (const char* name : {"a", "b", "c"}) submit({}, name);
  run({"job", "move", "c", "--first"});
  run({"job", "move", "a", "--after", "b"});
  run({"job", "cancel", "first"});
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(reaches(name, "succeeded"));
  EXPECT_LT(job("c")["daemon_epoch"].get<int>(), job("b")["daemon_epoch"].get<int>());
  EXPECT_LT(job("b")["daemon_epoch"].get<int>(), job("a")["daemon_epoch"].get<int>());
  const auto logs = client({"job", "logs", "a", "--follow"});
  EXPECT_EQ(logs.exit_code, 0);
  EXPECT_NE(logs.output.find("succeeded at step 20 of 20"), std::string::npos) << logs.output;
  const auto metrics = client({"job", "metrics", "a", "--after", "20", "--json"});
  EXPECT_EQ(std::count(metrics.output.begin(), metrics.output.end(), '\n'), 10) << metrics.output;
  EXPECT_EQ(metrics.output.rfind("{\"type\":\"metrics\",\"time\":\"", 0), 0u) << metrics.output;
  const auto dry = client_json({"job", "submit", write_job({}), "--dry-run", "--name", "dry"});
  EXPECT_GT(dry["estimate"]["memory"]["total"].get<std::int64_t>(), 0) << dry.dump(2);
  EXPECT_GT(dry["estimate"]["seconds"]["total"].get<double>(), 0);
  expect_refused_for({"job", "show", "dry"}, "JOB_NOT_FOUND");
}

TEST_F(JobChangesE2e, ADrainSavesTheJobAndNothingBeginsBeforeItsEnd) {
  start();
  submit(long_job(), "whole");
  ASSERT_TRUE(reaches("whole", "succeeded", 120s));
  submit(long_job(), "drained");
  ASSERT_TRUE(reaches_step("drained", 150));
  run({"drain", "--wait", "20", "--reason", "maintenance"});
  EXPECT_NE(client({"status"}).output.find("drained: maintenance"), std::string::npos);
  EXPECT_EQ(job("drained")["state"], "paused");
  submit({}, "later");
  kill_everything();
  start();
  EXPECT_EQ(client_json({"status"})["drain"], "drained");
  EXPECT_EQ(job("later")["state"], "queued");
  run({"undrain"});
  expect_equal("drained", "whole");
  EXPECT_TRUE(reaches("later", "succeeded"));
}

TEST_F(JobChangesE2e, PlansAndNamedModelsServeJobsAndGeneration) {
  start();
  run({"model", "create", "fresh", "--preset", "byte_gpt_tiny"});
  const Arguments asked{"--model", "models/fresh", "--mesh", "fsdp=2", "--dtype", "float32"};
  const auto with = [&](Arguments first) {
    first.insert(first.end(), asked.begin(), asked.end());
    return first;
  };
  const Json there = client_json(with({"plan", "estimate", "--server-side", "--seq", "32"}));
  Arguments here{"plan",   "estimate", "--model", "byte_gpt_tiny", "--mesh",
                 "fsdp=2", "--dtype",  "float32", "--seq",         "32"};
  EXPECT_EQ(client_json(here)["memory"], there["memory"]) << there.dump(2);
  EXPECT_EQ(client_json({"plan", "search", "--server-side", "--model", "models/fresh"})["ranks"],
            2);
  const std::string plan = client_json(with({"plan", "create"}))["plan"]["name"];
  EXPECT_EQ(client_json(with({"plan", "create"}))["plan"]["name"], plan) << "the same plan";
  expect_refused_for({"plan", "create", "--model", "models/fresh", "--mesh", "tp=4"},
                     "NEEDS_OTHER_RANKS");
  kill_everything();
  start();
  const std::string digits = plan.substr(6, 12);
  TinyJob named;
  named.model = "{name: fresh}";
  named.plan = fmt::format("{{name: '{}'}}", digits);
  named.steps = 10'000'000;
  named.checkpoint_interval = 5;
  submit(named, "named");
  ASSERT_TRUE(reaches_step("named", 10)) << job("named").dump(2);
  EXPECT_EQ(job("named")["resolved"]["mesh"]["fsdp"], 2);
  expect_refused_for({"plan", "delete", digits}, "PLAN_IN_USE");
  run({"job", "cancel", "named"});
  ASSERT_TRUE(reaches("named", "cancelled"));
  run({"plan", "delete", digits});
  EXPECT_EQ(client_json({"plan", "list"})["plans"].size(), 0u);

  expect_refused_for({"generate", "--model", "fresh", "--prompt", "a"}, "MODEL_HAS_NO_WEIGHTS");
  TinyJob exported;
  exported.extra = "  export: {hf_folder: hf}\n";
  submit(exported, "exported");
  ASSERT_TRUE(reaches("exported", "succeeded"));
  ASSERT_EQ(client({"checkpoint", "download", "checkpoints/exported/hf", (data_ / "hf").string()})
                .exit_code,
            0);
  run({"model", "create", "trained", "--from-data-dir", "hf"});
  const Arguments how{"--prompt", "ab", "--max-tokens", "8", "--temperature", "0"};
  Arguments by_name{"generate", "--model", "trained"}, by_folder{"generate", "--hf-folder", "hf"};
  by_name.insert(by_name.end(), how.begin(), how.end());
  by_folder.insert(by_folder.end(), how.begin(), how.end());
  const auto text = client(by_name);
  EXPECT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_EQ(text.output, client(by_folder).output);

  const Json can = client_json({"capabilities"});
  EXPECT_EQ(can["ranks"], 2);
  EXPECT_EQ(can["losses"].size(), 6u);
  EXPECT_EQ(can["devices"], Json({"cpu"}));
  EXPECT_GT(can["limits"].size(), 10u);
  for (const Json& limit : can["limits"])
    EXPECT_GT(limit["value"].get<std::int64_t>(), 0) << limit.dump();
}

}  // namespace
}  // namespace meshloom::e2e
