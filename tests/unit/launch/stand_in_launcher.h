// SPDX-License-Identifier: Apache-2.0
// Programs that stand for mpirun in tests: shell scripts, each in a folder of its own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "daemon/launch/start_daemon.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_folder.h"

namespace meshloom::launch {

/// Ends whatever was launched, and removes all of it.
class LaunchTest : public ::testing::Test {
 protected:
  ~LaunchTest() override {
    if (record_) LaunchedProcesses(*record_).kill_all(std::chrono::seconds(10));
  }

  /// A program whose arguments 10 and 11 are --state-dir and the folder, as of mpirun.
  LaunchOptions options(const std::string& script) const {
    const auto program = folder_.write("mpirun", "#!/bin/sh\nstate=${10}\n" + script);
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    return {2, state_, {}, program, "/bin/true"};
  }
  const LaunchRecord& start(const std::string& script) {
    const LaunchTurn turn(state_);
    record_ = start_daemon(options(script), turn);
    return *record_;
  }

  test::TempFolder folder_;
  const std::filesystem::path state_ = folder_ / "a state";
  std::optional<LaunchRecord> record_;
};

}  // namespace meshloom::launch
