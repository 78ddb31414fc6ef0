// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/launcher_watch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace meshloom::cli {
namespace {

class LauncherWatchTest : public ::testing::Test {
 protected:
  /// A process as /proc shows it.
  void write(int pid, const std::string& name, int parent, int started, char state = 'S') {
    std::filesystem::create_directories(proc_ / std::to_string(pid));
    std::ofstream(proc_ / std::to_string(pid) / "stat")
        << fmt::format("{} ({}) {} {} 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {} 0 0\n", pid,
                       name, state, parent, started);
  }
  void end(int pid) { std::filesystem::remove_all(proc_ / std::to_string(pid)); }
  LauncherWatch watch(const std::string& this_host = "here") {
    v1::ListWorkersResponse workers;
    for (const int pid : {11, 12}) {
      v1::Worker& worker = *workers.add_workers();
      worker.set_host("here");
      worker.set_pid(pid);
    }
    return LauncherWatch(workers, this_host, proc_.path());
  }
  void SetUp() override {
    write(10, "mpirun", 1, 500);
    write(11, "meshloomd", 10, 510);
    write(12, "meshloomd", 10, 511);
  }

  test::TempFolder proc_;
};

TEST_F(LauncherWatchTest, TheLauncherEndsAfterItsRanks) {
  const LauncherWatch launchers = watch();
  EXPECT_FALSE(launchers.ended());
  end(11);
  end(12);
  EXPECT_FALSE(launchers.ended());
  end(10);
  EXPECT_TRUE(launchers.ended());
}

TEST_F(LauncherWatchTest, AnEndedLaunchersNumberMayBeAnothersOrNobodyMayHaveAskedForIt) {
  const LauncherWatch launchers = watch();
  write(10, "mpirun", 1, 900);
  EXPECT_TRUE(launchers.ended()) << "another process";
  write(10, "mpirun", 1, 500, 'Z');
  EXPECT_TRUE(launchers.ended()) << "its parent has not looked yet";
}

TEST_F(LauncherWatchTest, OnlyLaunchersOfThisHostAreWaitedFor) {
  EXPECT_TRUE(watch("there").ended());
  write(10, "bash", 1, 500);
  EXPECT_TRUE(watch().ended()) << "a shell that started one rank";
  write(11, "other", 10, 510);
  end(12);
  write(10, "mpirun", 1, 500);
  EXPECT_TRUE(watch().ended()) << "these numbers are of other processes here";
}

}  // namespace
}  // namespace meshloom::cli
