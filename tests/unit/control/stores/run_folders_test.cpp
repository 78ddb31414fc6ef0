// SPDX-License-Identifier: Apache-2.0
// What a daemon that died has left in the folders of runs.
#include "daemon/control/stores/run_folders.h"

#include <gtest/gtest.h>

#include "daemon/control/stores/journal.h"
#include "daemon/control/stores/lost_folder.h"
#include "daemon/control/stores/names.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/open_job_store.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

class RunFoldersTest : public ::testing::Test {
 protected:
  struct Daemon {
    explicit Daemon(const fs::path& root)
        : state(root), jobs(state.journal(), {.jobs_dir = state.jobs()}, {&runs}) {
      sweep_run_folders(state, runs);
    }
    StateDir state;
    RunStore runs;
    OpenJobStore jobs;
  };

  static v1::RunRecord run_of(const std::string& id) {
    v1::RunRecord record;
    record.mutable_run()->set_name("runs/" + id);
    record.mutable_run()->set_state(v1::RUN_STATE_CLOSED);
    return record;
  }
  static v1::SavedWeights weights_of(const std::string& id, const std::string& name) {
    v1::SavedWeights saved;
    saved.set_name(weights_resource(id, name));
    saved.set_storage(v1::WEIGHTS_STORAGE_DISK);
    saved.set_folder(saved_weights_folder(id, name));
    return saved;
  }
  static void put(RunStore& runs, const std::string& id, const std::vector<std::string>& states,
                  const std::vector<std::string>& weights) {
    runs.put(run_of(id));
    for (const std::string& name : states) {
      v1::SavedState saved;
      saved.set_name(state_resource(id, name));
      saved.set_folder(saved_state_folder(id, name, 1, 1));
      runs.put_state(saved);
    }
    for (const std::string& name : weights) runs.put_weights(weights_of(id, name));
  }
  void write(const std::string& folder) const {
    folder_.write("state/" + folder + "/data", folder);
  }
  bool exists(const std::string& folder) const { return fs::exists(root_ / folder); }

  test::TempFolder folder_;
  fs::path root_ = folder_ / "state";
};

TEST_F(RunFoldersTest, WhatARecordHasRemovedGoesAndWhatNoneKnowsOfIsKept) {
  const std::vector<std::string> known = {"runs/r/states/a-1-1", "runs/r/weights/w"};
  const std::vector<std::string> removed = {"runs/r/states/b-1-1", "runs/r/weights/v", "runs/gone",
                                            "runs/r/states/.begun"};
  const std::vector<std::string> unknown = {"runs/r/states/c-1-1", "runs/r/weights/u",
                                            "runs/other"};
  {
    Daemon daemon(root_);
    for (const auto* folders : {&known, &removed, &unknown})
      for (const std::string& folder : *folders) write(folder);
    put(daemon.runs, "r", {"a", "b"}, {"v", "w"});
    put(daemon.runs, "gone", {"a"}, {});
    // A death behind these records, and before that of a new state and new weights.
    daemon.runs.remove_state("runs/r/states/b");
    daemon.runs.remove_weights("runs/r/weights/v");
    daemon.runs.remove("gone");
  }
  for (int start = 0; start < 2; ++start) {
    const Daemon daemon(root_);
    for (const std::string& folder : known) EXPECT_TRUE(exists(folder + "/data")) << folder;
    for (const std::string& folder : removed) EXPECT_FALSE(exists(folder)) << folder;
    const auto lost = LostFolder(root_).list();
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].files, 3);
    for (const std::string& folder : unknown) {
      EXPECT_FALSE(exists(folder)) << folder << ": its name is free";
      EXPECT_EQ(test::file_text(root_ / lost[0].folder / folder / "data"), folder);
    }
  }
}

TEST_F(RunFoldersTest, ANewOneOfARemovedNameStays) {
  {
    Daemon daemon(root_);
    put(daemon.runs, "r", {"a"}, {"w"});
    daemon.runs.remove_state("runs/r/states/a");
    daemon.runs.remove_weights("runs/r/weights/w");
    daemon.runs.remove("r");
    put(daemon.runs, "r", {"a"}, {"w"});
    write("runs/r/states/a-1-1");
    write("runs/r/weights/w");
  }
  const Daemon daemon(root_);
  EXPECT_TRUE(exists("runs/r/states/a-1-1/data"));
  EXPECT_TRUE(exists("runs/r/weights/w/data"));
  EXPECT_TRUE(LostFolder(root_).list().empty());
}

TEST_F(RunFoldersTest, WeightsOfAnOlderJournalAreWhereTheStateDirIsNow) {
  write("runs/r/weights/w");
  {
    v1::RunRecord old = run_of("r");
    *old.mutable_run()->add_weights() = weights_of("r", "w");
    old.mutable_run()->mutable_weights(0)->set_folder("/somewhere/else/runs/r/weights/w");
    v1::JournalRecord record;
    *record.mutable_run() = old;
    Journal journal(root_ / "journal", [](std::string_view) {});
    journal.append(record.SerializeAsString());
  }
  for (const char* place : {"state", "moved", "again"}) {
    fs::rename(root_, folder_ / place);
    root_ = folder_ / place;
    Daemon daemon(root_);
    EXPECT_TRUE(exists("runs/r/weights/w/data"));
    EXPECT_EQ(daemon.runs.all().at("r").run().weights(0).folder(), "runs/r/weights/w");
  }
}

}  // namespace
}  // namespace meshloom::control
