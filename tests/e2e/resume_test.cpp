// SPDX-License-Identifier: Apache-2.0
// New jobs that begin with a checkpoint, on any mesh.
#include <fmt/format.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

constexpr int kResumeSteps = 30;

class ResumeE2e : public DaemonTest {
 protected:
  static TinyJob short_job(const std::string& resume_from = "") {
    TinyJob job;
    job.steps = kResumeSteps;
    job.checkpoint_interval = 10;
    job.resume_from = resume_from;
    return job;
  }
  /// "first": cut over tp, with checkpoints of steps 20 and 30.
  void train_first() {
    start(2);
    const auto result = client(
        {"job", "submit", write_job(short_job()), "--name", "first", "--plan", plan_path("tp2")});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    ASSERT_TRUE(reaches("first", "succeeded")) << job("first").dump(2);
  }
  void make(const Arguments& arguments) {
    Arguments all{"job"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto result = client(all);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const std::string name = arguments.back();
    ASSERT_TRUE(reaches(name, "succeeded")) << job(name).dump(2);
  }
  /// The job has the losses of "first" after step 20, and none before.
  /// `from_job`: its checkpoint is that job's, whose metrics come before its own.
  void expect_goes_on(const std::string& name, double tolerance, bool from_job = true) {
    const auto first = step_losses("first");
    const auto mine = step_losses(name);
    ASSERT_EQ(mine.size(), static_cast<std::size_t>(kResumeSteps - 20)) << name;
    for (const auto& [step, loss] : mine)
      EXPECT_NEAR(loss, first.at(step), tolerance * first.at(step)) << name << " step " << step;
    std::ifstream metrics(state_ / "jobs" / name / "metrics.jsonl");
    int steps = from_job ? 0 : 20;
    for (std::string line; std::getline(metrics, line);) {
      const Json entry = Json::parse(line);
      if (!entry.contains("grad_norm")) continue;
      EXPECT_EQ(entry["step"], ++steps);
      EXPECT_EQ(entry["job"], steps <= 20 ? "first" : name) << "step " << steps;
    }
    EXPECT_EQ(steps, kResumeSteps);
  }
  void expect_refused(const Arguments& arguments, const std::string& text) {
    Arguments all{"job"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto result = client(all);
    EXPECT_NE(result.exit_code, 0) << text;
    EXPECT_NE(result.errors.find(text), std::string::npos) << result.errors;
  }
  std::string job_file(const std::string& name, const TinyJob& tiny) {
    return write_job(tiny, name + ".yaml");
  }
};

TEST_F(ResumeE2e, ACheckpointOfTensorParallelGoesOnOnEveryMesh) {
  train_first();
  for (const std::string mesh : {"fsdp2", "dp2", "tp2"}) {
    make({"resume", "first", "--checkpoint", "step-20", "--plan", plan_path(mesh), "--name", mesh});
    expect_goes_on(mesh, mesh == "tp2" ? 0.0 : 1e-5);
  }
  const auto page = client({"job", "show", "fsdp2"});
  EXPECT_NE(page.output.find("checkpoints/first/step-20"), std::string::npos) << page.output;
  EXPECT_NE(page.output.find("goes on from the checkpoint of step 20"), std::string::npos);
  EXPECT_EQ(job("fsdp2")["resolved"]["checkpoint"]["resume_from"], "checkpoints/first/step-20");
}

TEST_F(ResumeE2e, AJobFileNamesACheckpointOfAJobOrAFolder) {
  train_first();
  make({"submit", job_file("named", short_job("checkpoints/first/step-20")), "--name", "named"});
  expect_goes_on("named", 1e-5);
  fs::create_directories(data_ / "saved");
  fs::copy(state_ / "jobs/first/checkpoints/step-20", data_ / "saved/mine",
           fs::copy_options::recursive);
  make({"submit", job_file("folder", short_job("saved/mine")), "--name", "folder"});
  expect_goes_on("folder", 1e-5, false);
}

TEST_F(ResumeE2e, ACancelledJobAndAFinishedOneGoOn) {
  start(2);
  TinyJob endless;
  endless.steps = 10'000'000;
  submit(endless, "long");
  ASSERT_TRUE(reaches_step("long", 20));
  expect_refused({"resume", "long"}, "has not ended");
  ASSERT_EQ(client({"job", "cancel", "long"}).exit_code, 0);
  ASSERT_TRUE(reaches("long", "cancelled"));
  const int done = job("long")["step"].get<int>();
  const auto more = std::to_string(done + 5);
  make({"resume", "long", "--steps", more, "--plan", plan_path("tp2"), "--name", "more"});
  EXPECT_EQ(step_losses("more").begin()->first, done + 1);
  expect_refused({"resume", "more"}, "give more steps");
  make({"resume", "more", "--steps", std::to_string(done + 8), "--name", "again"});
  EXPECT_EQ(step_losses("again").begin()->first, done + 6);
}

TEST_F(ResumeE2e, ADtypeLeftOpenIsSaidAndStaysThatOfTheCheckpoint) {
  start(1);
  TinyJob open = short_job();
  open.plan = "{}";
  submit(open, "open");  // 64 channels: float32 on every CPU
  ASSERT_TRUE(reaches("open", "succeeded"));
  EXPECT_NE(job("open")["notes"].dump().find("dtype auto is float32: what CPU class"),
            std::string::npos)
      << job("open")["notes"];
  TinyJob narrow = short_job();
  narrow.plan = "{dtype: bfloat16}";
  submit(narrow, "narrow");
  ASSERT_TRUE(reaches("narrow", "succeeded"));
  EXPECT_EQ(job("narrow")["notes"].dump().find("dtype auto"), std::string::npos);
  TinyJob later = short_job("checkpoints/narrow/step-20");
  later.plan = "{dtype: auto}";
  submit(later, "later");
  ASSERT_TRUE(reaches("later", "succeeded"));
  EXPECT_EQ(job("later")["resolved"]["plan"]["dtype"], "bfloat16");
  EXPECT_NE(job("later")["notes"].dump().find("dtype auto is bfloat16, as in the checkpoint"),
            std::string::npos)
      << job("later")["notes"];
}

TEST_F(ResumeE2e, WhatCannotBeResumedIsRefusedAtSubmission) {
  train_first();
  expect_refused({"resume", "nobody"}, "job \"nobody\" does not exist");
  expect_refused({"resume", "first", "--checkpoint", "step-7"},
                 "checkpoints/first/step-7 does not exist, job \"first\" has step-20, step-30");
  expect_refused({"resume", "first", "--checkpoint", "../../x"}, "does not exist");
  TinyJob tiny = short_job("checkpoints/first/step-20");
  tiny.model = "{preset: llama_tiny}";
  const std::string other = job_file("model", tiny);
  expect_refused({"submit", other}, "is of another model");
  expect_refused({"submit", other}, "model.yaml:");
  tiny = short_job("checkpoints/first/step-20");
  std::ofstream(data_ / "other.txt") << read_file(data_ / "text.txt");
  tiny.data = "other.txt";
  expect_refused({"submit", job_file("data", tiny)}, "is of other data: data.path is \"text.txt\"");
  for (const auto* path : {"nowhere/step-20", "/etc", "../state/jobs/first/checkpoints/step-20"})
    expect_refused({"submit", job_file("path", short_job(path))}, "run.checkpoint.resume_from");
  fs::create_directories(data_ / "empty");
  expect_refused({"submit", job_file("empty", short_job("empty"))}, "is no checkpoint");
}

TEST_F(ResumeE2e, APlanFileReplacesMeshAndPlanAndIsNamedInErrors) {
  start(2);
  TinyJob tiny;
  tiny.extra = "  mesh: {dp: 1, tp: 2}\n";
  tiny.plan = "{dtype: float32, sequence_parallel: true}";
  const std::string file = job_file("cut", tiny);
  make({"submit", file, "--plan", plan_path("dp2"), "--name", "plain"});
  const Json resolved = job("plain")["resolved"];
  EXPECT_FALSE(resolved["plan"].value("sequence_parallel", false)) << resolved.dump(2);
  EXPECT_EQ(resolved["plan"]["dtype"], "float32");
  EXPECT_EQ(resolved["mesh"]["tp"], 1);
  const std::string bad = write_text("bad_plan.yaml", "plan:\n  sequence_parallel: true\n");
  expect_refused({"submit", file, "--plan", bad}, "bad_plan.yaml:2: run.plan.sequence_parallel");
  const std::string three = write_text("three.yaml", "\nmesh: {tp: 3}\n");
  expect_refused({"submit", file, "--plan", three}, "three.yaml:2: run.mesh.tp");
}

}  // namespace
}  // namespace meshloom::e2e
