// SPDX-License-Identifier: Apache-2.0
// What the parts of a run stand on, without a daemon: its stores on a journal, and a rank that only
// takes commands.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>

#include "daemon/control/host/uptime_clock.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/ranks/command_queue.h"
#include "daemon/control/ranks/executor.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/state_dir.h"
#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/fake_admission.h"
#include "tests/unit/control/open_job_store.h"
#include "tests/unit/control/ranks/failed_ranks.h"

namespace meshloom::control {

/// No job has the ranks.
class NoTraining final : public Training {
 public:
  bool busy() const override { return false; }
};

/// Stands where a test sets it.
class SetClock final : public UptimeClock {
 public:
  explicit SetClock(std::int64_t now = 0) : seconds(now) {}
  std::int64_t uptime() const override { return seconds; }

  std::int64_t seconds;
};

/// The run is called "r", and is in the journal.
class StoredRunTest : public ::testing::Test {
 protected:
  StoredRunTest() {
    executor_.attach(0, &commands_);
    store_.put(record());
  }

  static v1::RunRecord record() {
    v1::RunRecord record;
    v1::Run& run = *record.mutable_run();
    run.set_name(run_resource("r"));
    run.set_client("tester");
    run.set_state(v1::RUN_STATE_QUEUED);
    run.set_epoch(1);
    run.set_next_seq(1);
    v1::Mesh& mesh = *run.mutable_resolved()->mutable_mesh();
    mesh.set_dp(1);
    mesh.set_fsdp(1);
    mesh.set_cp(1);
    mesh.set_tp(1);
    return record;
  }
  /// With files in its folder.
  v1::SavedState state(const std::string& name, std::int64_t seq) {
    v1::SavedState saved;
    saved.set_name(state_resource("r", name));
    saved.set_epoch(1);
    saved.set_seq(seq);
    saved.set_next_seq(seq + 1);
    saved.set_step(seq);
    saved.set_folder(saved_state_folder("r", name, 1, seq));
    write_files(saved.folder());
    return saved;
  }
  void write_files(const std::string& folder) {
    std::filesystem::create_directories(dir_.root() / folder);
    std::ofstream(dir_.root() / folder / "file") << "x";
  }
  bool has_files(const std::string& folder) {
    return std::filesystem::exists(dir_.root() / folder);
  }
  static std::string reason_of(const std::function<void()>& refused) {
    try {
      refused();
    } catch (const Error& error) {
      return error.reason();
    }
    return "";
  }

  test::TempFolder folder_;
  FakePlan plan_;
  StateDir dir_{folder_ / "state"};
  RunStore store_;
  OpenJobStore jobs_{dir_.journal(), {.jobs_dir = dir_.jobs()}, {&store_}};
  const Uses uses_;
  FakeAdmission admission_{plan_, folder_ / "data"};
  CommandQueue commands_;
  FailedRanks failed_;
  Executor executor_{1, failed_};
  const NoTraining training_;
};

}  // namespace meshloom::control
