// SPDX-License-Identifier: Apache-2.0
// What happens to files around a daemon: cut, replaced, pipes, strange names, removed folders.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/e2e/daemon_fixture.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

class FilesE2e : public DaemonTest {
 protected:
  static TinyJob endless(const std::string& data = "text.txt") {
    TinyJob job;
    job.steps = 10'000'000;
    job.checkpoint_interval = 10;
    job.data = data;
    return job;
  }
  /// The error of a submission that must be refused.
  std::string refused(const std::string& data) {
    TinyJob job;
    job.data = data;
    const auto result = client({"job", "submit", write_job(job, "refused.yaml")});
    EXPECT_EQ(result.exit_code, 2) << result.output << result.errors;
    return result.errors;
  }
  static bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

TEST_F(FilesE2e, ADataFileThatIsCutInTrainingEndsItsJobAlone) {
  start(2);
  fs::copy(data_ / "text.txt", data_ / "cut.txt");
  submit(endless("cut.txt"), "cut");
  ASSERT_TRUE(reaches_step("cut", 5));
  fs::resize_file(data_ / "cut.txt", 100);
  ASSERT_TRUE(reaches("cut", "failed"));
  const Json error = job("cut")["error"];
  EXPECT_EQ(error["info"]["reason"], "FILE_TRUNCATED") << error.dump(2);
  EXPECT_TRUE(holds(error["message"], "cut.txt ends at byte 100")) << error.dump(2);
  submit({}, "next");
  EXPECT_TRUE(reaches("next", "succeeded")) << job("next").dump(2);
  EXPECT_EQ(rank_pids(), pids_);
}

TEST_F(FilesE2e, ARestartOnOtherDataFailsTheJobOrSaysSo) {
  for (const bool allowed : {false, true}) {
    const std::string name = allowed ? "allowed" : "refused";
    start(2);
    TinyJob changing = endless(fmt::format("changing.txt, allow_changed: {}", allowed));
    fs::copy(data_ / "text.txt", data_ / "changing.txt", fs::copy_options::overwrite_existing);
    submit(changing, name);
    ASSERT_TRUE(reaches_step(name, 25));
    kill_everything();
    std::ofstream(data_ / "changing.txt", std::ios::app) << "more";
    start(2);
    if (allowed) {
      ASSERT_TRUE(reaches_step(name, 26));
      EXPECT_TRUE(holds(job(name)["notes"].dump(), "changing.txt has")) << job(name).dump(2);
      client({"job", "cancel", name});
    } else {
      ASSERT_TRUE(reaches(name, "failed"));
      EXPECT_EQ(job(name)["error"]["info"]["reason"], "DATA_CHANGED") << job(name).dump(2);
      const auto again = client({"job", "resume", name});
      EXPECT_NE(again.exit_code, 0) << again.output;
      EXPECT_TRUE(holds(again.errors, "data.allow_changed: true would go on")) << again.errors;
      const auto on = client({"job", "resume", name, "--allow-changed-data", "--name", "goes-on"});
      ASSERT_EQ(on.exit_code, 0) << on.errors;
      ASSERT_TRUE(reaches_step("goes-on", 26)) << job("goes-on").dump(2);
      client({"job", "cancel", "goes-on"});
    }
    shut_down();
  }
}

TEST_F(FilesE2e, PipesLoopsAndLongNamesAreRefusedAtOnce) {
  start(2);
  ASSERT_EQ(::mkfifo((data_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink(data_ / "loop", data_ / "loop");
  EXPECT_TRUE(holds(refused("pipe"), "is a pipe, expected a regular file"));
  EXPECT_TRUE(holds(refused("loop"), "Too many levels of symbolic links"));
  EXPECT_TRUE(holds(refused(std::string(4096, 'n')), "File name too long"));
  EXPECT_TRUE(holds(refused("größe.txt"), "\"größe.txt\" does not exist"));
  TinyJob config;
  config.model = "{config: pipe}";
  const auto model = client({"job", "submit", write_job(config)});
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_TRUE(holds(model.errors, "run.model.config")) << model.errors;
  shut_down();
}

TEST_F(FilesE2e, FoldersWhoseNamesAreNotTextAreRefusedAtStart) {
  const fs::path strange = folder_ / "caf\xe9";
  fs::create_directories(strange);
  for (const std::string flag : {"--state-dir", "--data-dir"}) {
    const auto process =
        launch(1, {"--listen", "127.0.0.1:0", flag, strange.string()}, "strange.log");
    EXPECT_EQ(process->wait(20s), 2);
    EXPECT_TRUE(holds(read_file(folder_ / "strange.log"), flag + ": the path"));
    EXPECT_TRUE(holds(read_file(folder_ / "strange.log"), "caf\\xe9 is not UTF-8"));
  }
  fs::create_directories(data_ / "folder");
  std::ofstream(data_ / "folder" / "caf\xe9.txt") << read_file(data_ / "text.txt");
  start(1);
  TinyJob job;
  job.data = "folder";
  submit(job, "strange");
  EXPECT_TRUE(reaches("strange", "succeeded"));
  shut_down();
  start(1);
  EXPECT_EQ(this->job("strange")["state"], "succeeded");
}

TEST_F(FilesE2e, AStateDirIsPrivateAndNotUsedWhenItIsGone) {
  fs::create_directories(state_);
  fs::permissions(state_, fs::perms(0755));
  start(2);
  submit({}, "kept");
  ASSERT_TRUE(reaches("kept", "succeeded"));
  for (const auto& entry : fs::recursive_directory_iterator(state_))
    EXPECT_EQ(entry.status().permissions() & (fs::perms::group_all | fs::perms::others_all),
              fs::perms::none)
        << entry.path();
  EXPECT_EQ(fs::status(state_).permissions(), fs::perms::owner_all);
  fs::remove_all(state_);
  EXPECT_TRUE(holds(client({"job", "submit", write_job({})}).errors, "was removed or replaced"));
}

TEST_F(FilesE2e, WhatTheJournalCannotTakeIsToldByStatusUntilItCan) {
  start(1);
  TinyJob unsaved = endless();
  unsaved.checkpoint_interval = 0;
  submit(unsaved, "running");
  ASSERT_TRUE(reaches_step("running", 2));
  EXPECT_TRUE(client_json({"status"})["journal_trouble"].empty());
  rlimit before{};
  ASSERT_EQ(::prlimit(pids_[0], RLIMIT_FSIZE, nullptr, &before), 0);
  const rlimit full{fs::file_size(state_ / "journal") + 1, before.rlim_max};
  ASSERT_EQ(::prlimit(pids_[0], RLIMIT_FSIZE, &full, nullptr), 0);
  EXPECT_EQ(client({"job", "cancel", "running"}).exit_code, 0) << "it has effect all the same";
  const auto told = [&] { return client_json({"status"})["journal_trouble"].dump(); };
  EXPECT_TRUE(eventually(10s, [&] { return holds(told(), "changes wait to be written"); }))
      << told();
  const auto status = client({"status"});
  EXPECT_TRUE(holds(status.output, "journal: changes wait to be written")) << status.output;
  ASSERT_EQ(::prlimit(pids_[0], RLIMIT_FSIZE, &before, nullptr), 0);
  EXPECT_TRUE(eventually(10s, [&] { return told() == "[]"; })) << told();
  EXPECT_TRUE(reaches("running", "cancelled"));
}

TEST_F(FilesE2e, NoTokensAreWrittenIntoTheStateFolder) {
  fs::create_directories(state_);
  start(1, {"--data-dir", state_.string()});
  std::ofstream(data_ / "text.txt") << "some text";
  const std::string journal = (state_ / "journal").string();
  const std::string before = read_file(journal);
  const auto result = client(
      {"data", "tokenize", "--tokenizer", "bytes", "--out", journal, "--overwrite", "text.txt"});
  EXPECT_EQ(result.exit_code, 2) << result.output << result.errors;
  EXPECT_NE(result.errors.find("is in the daemon's state folder"), std::string::npos)
      << result.errors;
  EXPECT_EQ(read_file(journal).substr(0, before.size()), before);
  shut_down();
}

TEST_F(FilesE2e, ARequestThatHangsInAFileSystemNeitherWaitsForEverNorStopsAStop) {
  const fs::path entered = folder_ / "entered";
  ::setenv("LD_PRELOAD", MESHLOOM_HANGING_OPEN, 1);
  ::setenv("HANGING_OPEN", "hanging.txt", 1);
  ::setenv("HANGING_OPEN_ENTERED", entered.c_str(), 1);
  const auto config = write_text("daemon.yaml", "resolve_timeout_ms: 1000\n");
  start(2, {"--config", config});
  for (const char* name : {"LD_PRELOAD", "HANGING_OPEN", "HANGING_OPEN_ENTERED"}) ::unsetenv(name);
  fs::copy(data_ / "text.txt", data_ / "hanging.txt");
  submit(endless(), "running");
  TinyJob hanging;
  hanging.data = "hanging.txt";
  const auto late = client({"job", "submit", write_job(hanging, "hanging.yaml")});
  EXPECT_EQ(late.exit_code, 1) << late.errors;
  EXPECT_TRUE(holds(late.errors, "file system does not answer")) << late.errors;
  EXPECT_TRUE(fs::exists(entered));
  ASSERT_TRUE(reaches_step("running", 5));
  ::kill(pids_[0], SIGTERM);
  EXPECT_EQ(wait_for_end(30s), 0) << daemon_log();
  EXPECT_TRUE(holds(daemon_log(), "meshloomd has stopped")) << daemon_log();
}

}  // namespace
}  // namespace meshloom::e2e
