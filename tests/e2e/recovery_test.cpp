// SPDX-License-Identifier: Apache-2.0
// What survives signals, kills and restarts.
#include <signal.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class RecoveryE2e : public DaemonTest {
 protected:
  static TinyJob long_job() {
    TinyJob job;
    job.steps = 1200;
    job.validation_interval = 400;
    job.checkpoint_interval = 100;
    job.extra = "  export: {hf_folder: hf}\n";
    return job;
  }
  /// The same job without an interruption, in the same daemon.
  void run_whole() {
    submit(long_job(), "whole");
    ASSERT_TRUE(reaches("whole", "succeeded", 120s));
  }
  /// Bit for bit.
  void expect_equal_to_whole(const std::string& name) {
    ASSERT_TRUE(reaches(name, "succeeded", 120s)) << job(name).dump(2);
    const Json whole = job("whole");
    const Json other = job(name);
    EXPECT_EQ(whole["last_step"]["loss"], other["last_step"]["loss"]);
    EXPECT_EQ(whole["last_validation"], other["last_validation"]);
    EXPECT_EQ(whole["first_validation"], other["first_validation"]);
    EXPECT_EQ(read_file(state_ / "jobs/whole/hf/model.safetensors"),
              read_file(state_ / "jobs" / name / "hf/model.safetensors"));
    EXPECT_EQ(losses("whole"), losses(name));
  }
  std::vector<double> losses(const std::string& name) {
    std::vector<double> values;
    std::ifstream file(state_ / "jobs" / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json entry = Json::parse(line);
      if (entry.contains("loss")) values.push_back(entry["loss"]);
    }
    EXPECT_EQ(values.size(), 1200u);
    return values;
  }
};

TEST_F(RecoveryE2e, AfterKillOfEverythingQueueAndJobGoOnToTheSameLoss) {
  start();
  run_whole();
  submit(long_job(), "killed");
  submit({}, "queued");
  ASSERT_TRUE(reaches_step("killed", 250));
  kill_everything();
  start();
  expect_equal_to_whole("killed");
  EXPECT_GE(job("killed")["daemon_epoch"].get<int>(), 3);
  EXPECT_TRUE(reaches("queued", "succeeded"));
}

TEST_F(RecoveryE2e, KillOfMpirunAloneLeavesNothingBehind) {
  start();
  submit(long_job(), "running");
  ASSERT_TRUE(reaches_step("running", 5));
  daemon_->signal(SIGKILL);
  for (const pid_t pid : pids_) EXPECT_TRUE(eventually(5s, [&] { return !is_alive(pid); })) << pid;
}

TEST_F(RecoveryE2e, SigtermToARankSavesAndARestartGoesOn) {
  start();
  run_whole();
  TinyJob unsaved = long_job();
  unsaved.checkpoint_interval = 0;  // only the stop saves
  submit(unsaved, "stopped");
  ASSERT_TRUE(reaches_step("stopped", 150));
  ::kill(pids_[1], SIGTERM);
  EXPECT_EQ(wait_for_end(), 0);
  EXPECT_FALSE(fs::exists(state_ / "address"));
  EXPECT_FALSE(fs::is_empty(state_ / "jobs/stopped/checkpoints"));
  start();
  expect_equal_to_whole("stopped");
}

TEST_F(RecoveryE2e, CtrlCOnMpirunLeavesNothingBehindAndAWholeCheckpoint) {
  start();
  run_whole();
  submit(long_job(), "stopped");
  ASSERT_TRUE(reaches_step("stopped", 150));
  daemon_->signal(SIGINT);
  wait_for_end();
  start();
  expect_equal_to_whole("stopped");
}

TEST_F(RecoveryE2e, ShutdownSavesAndNoResumeHolds) {
  start();
  TinyJob endless;
  endless.steps = 10'000'000;
  submit(endless, "endless");
  ASSERT_TRUE(reaches_step("endless", 10));
  EXPECT_EQ(client({"shutdown", "--wait", "20"}).exit_code, 0);
  EXPECT_EQ(wait_for_end(), 0);
  start(2, {"--no-resume"});
  submit({}, "new");
  EXPECT_TRUE(reaches("new", "succeeded"));
  EXPECT_EQ(job("endless")["state"], "held");
  EXPECT_EQ(job("endless")["hold_code"], "no_resume");
  EXPECT_EQ(client({"job", "release", "endless"}).exit_code, 0);
  EXPECT_TRUE(reaches("endless", "running"));
  EXPECT_EQ(client({"job", "cancel", "endless"}).exit_code, 0);
  EXPECT_TRUE(reaches("endless", "cancelled"));
}

TEST_F(RecoveryE2e, ARankThatDiesTakesTheDaemonDownAndTheJobGoesOnLater) {
  start();
  submit(long_job(), "job");
  ASSERT_TRUE(reaches_step("job", 150));
  ::kill(pids_[1], SIGKILL);
  EXPECT_NE(wait_for_end(30s), 0);
  start();
  EXPECT_TRUE(reaches("job", "succeeded", 120s));
}

TEST_F(RecoveryE2e, AJobThatTakesTheDaemonDownBeforeItsFirstCheckpointIsHeld) {
  start();
  TinyJob unsaved = long_job();
  unsaved.steps = 10'000'000;
  unsaved.checkpoint_interval = 0;
  submit(unsaved, "looping");
  // Later attempts end at a step that the first one has done.
  ASSERT_TRUE(reaches_step("looping", 2000));
  for (int attempt = 1; attempt <= 3; ++attempt) {
    kill_everything();
    start();
    ASSERT_TRUE(reaches_step("looping", 5));
    EXPECT_EQ(job("looping")["stalled_attempts"], attempt);
  }
  kill_everything();
  start();
  EXPECT_EQ(job("looping")["state"], "held");
  EXPECT_EQ(job("looping")["hold_code"], "crash_loop");
  EXPECT_EQ(job("looping")["attempt"], 4);
  submit({}, "next");
  EXPECT_TRUE(reaches("next", "succeeded"));
  EXPECT_EQ(client({"job", "release", "looping"}).exit_code, 0);
  EXPECT_TRUE(reaches("looping", "running"));
  EXPECT_EQ(client({"job", "cancel", "looping"}).exit_code, 0);
  EXPECT_TRUE(reaches("looping", "cancelled"));
  shut_down();
}

/// Changes a byte of the newest checkpoint's tensors; its folder.
fs::path damage_newest_checkpoint(const fs::path& checkpoints) {
  fs::path newest;
  int newest_step = -1;
  for (const auto& item : fs::directory_iterator(checkpoints)) {
    const int step = std::stoi(item.path().filename().string().substr(5));
    if (step > newest_step) newest = item.path();
    newest_step = std::max(newest_step, step);
  }
  for (const auto& item : fs::directory_iterator(newest)) {
    if (item.path().extension() != ".safetensors") continue;
    std::fstream file(item.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('!');
  }
  return newest;
}

TEST_F(RecoveryE2e, ADamagedNewestCheckpointIsPassedOverOrRefusedByName) {
  for (const bool fallback : {true, false}) {
    const std::string name = fallback ? "passed_over" : "refused";
    start();
    TinyJob endless = long_job();
    endless.steps = 10'000'000;
    endless.fallback = fallback;
    submit(endless, name);
    ASSERT_TRUE(reaches_step(name, 310));
    EXPECT_EQ(client({"shutdown"}).exit_code, 0);
    EXPECT_EQ(wait_for_end(), 0);
    const fs::path newest = damage_newest_checkpoint(state_ / "jobs" / name / "checkpoints");
    start();
    const std::string damaged = newest.filename().string();
    if (fallback) {
      EXPECT_TRUE(eventually(30s, [&] { return job(name)["state"] == "running"; }));
      const std::string notes = job(name)["notes"].dump();
      EXPECT_NE(notes.find(damaged), std::string::npos) << notes;
      EXPECT_NE(notes.find("resumed from step-"), std::string::npos) << notes;
      EXPECT_EQ(client({"job", "cancel", name}).exit_code, 0);
    } else {
      ASSERT_TRUE(eventually(30s, [&] { return job(name)["state"] == "failed"; }));
      const Json failed = job(name);
      EXPECT_EQ(failed["error"]["kind"], "DATA_LOSS");
      EXPECT_NE(failed["error"]["message"].get<std::string>().find(damaged), std::string::npos);
    }
    shut_down();
  }
}

TEST_F(RecoveryE2e, ATornJournalIsReadAndADamagedOneRefused) {
  start(1);
  submit({}, "done");
  ASSERT_TRUE(reaches("done", "succeeded"));
  kill_everything();
  std::ofstream(state_ / "journal", std::ios::app | std::ios::binary) << "torn";
  start(1);
  EXPECT_EQ(job("done")["state"], "succeeded");
  EXPECT_EQ(client({"shutdown"}).exit_code, 0);
  EXPECT_EQ(wait_for_end(), 0);
  std::fstream journal(state_ / "journal", std::ios::in | std::ios::out | std::ios::binary);
  journal.seekp(60);
  journal.put('!');
  journal.close();
  const auto refused = launch(1, {"--listen", "127.0.0.1:0"}, "refused.log");
  EXPECT_EQ(refused->wait(20s), 1);
  EXPECT_NE(read_file(folder_ / "refused.log").find("is damaged at byte"), std::string::npos);
}

}  // namespace
}  // namespace meshloom::e2e
