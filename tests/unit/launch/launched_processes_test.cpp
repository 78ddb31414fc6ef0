// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/launched_processes.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include "tests/unit/launch/stand_in_launcher.h"

namespace meshloom::launch {
namespace {

using namespace std::chrono_literals;
using LaunchedProcessesTest = LaunchTest;

// Of the two, one is given the state dir, as a rank is.
constexpr const char* kTwoRanks =
    "sh -c 'sleep 100; :' rank \"$state\" &\nsh -c 'sleep 100; :' stranger &\nwait\n";

TEST_F(LaunchedProcessesTest, AreTheWholeSession) {
  const LaunchedProcesses processes(start(kTwoRanks));
  // The launcher, two shells, and what these wait for.
  ASSERT_TRUE(test::eventually([&] { return processes.members().size() == 5; }));
  EXPECT_TRUE(processes.launcher_runs());
  EXPECT_FALSE(processes.ended());
  EXPECT_TRUE(processes.owns(processes.record().launcher.pid));
  EXPECT_FALSE(processes.owns(::getpid()));
  EXPECT_TRUE(processes.kill_all(5s));
  EXPECT_TRUE(processes.members().empty());
}

TEST_F(LaunchedProcessesTest, OfALauncherThatHasGoneOnlyThoseThatKnowTheFolderCount) {
  const LaunchedProcesses processes(start(kTwoRanks));
  ASSERT_TRUE(test::eventually([&] { return processes.members().size() == 5; }));
  const std::vector<pid_t> all = processes.members();
  ::kill(processes.record().launcher.pid, SIGKILL);
  ASSERT_TRUE(test::eventually([&] { return processes.members().size() == 1; }));
  EXPECT_FALSE(processes.launcher_runs());
  EXPECT_FALSE(processes.ended());
  EXPECT_TRUE(processes.kill_all(5s));
  for (const pid_t pid : all) ::kill(pid, SIGKILL);
}

TEST_F(LaunchedProcessesTest, WhereTheLauncherHasGoneTheRanksThemselvesAreAskedToEnd) {
  const LaunchedProcesses processes(start(kTwoRanks));
  ASSERT_TRUE(test::eventually([&] { return processes.members().size() == 5; }));
  const std::vector<pid_t> all = processes.members();
  ::kill(processes.record().launcher.pid, SIGKILL);
  ASSERT_TRUE(test::eventually([&] { return processes.members().size() == 1; }));
  processes.ask_to_end();
  EXPECT_TRUE(test::eventually([&] { return processes.ended(); }));
  for (const pid_t pid : all) ::kill(pid, SIGKILL);
}

TEST_F(LaunchedProcessesTest, ANumberThatIsUsedAgainIsNobodys) {
  LaunchRecord record = start(kTwoRanks);
  record.launcher.start_time += 1;
  const LaunchedProcesses others(record);
  EXPECT_FALSE(others.launcher_runs());
  EXPECT_TRUE(others.members().empty());
  EXPECT_TRUE(others.end(1s));
  EXPECT_TRUE(LaunchedProcesses(*record_).launcher_runs()) << "it was not touched";
}

TEST_F(LaunchedProcessesTest, WhoeverDoesNotHearIsKilled) {
  const LaunchedProcesses deaf(
      start("trap '' TERM\ntouch \"$state/ready\"\nwhile :; do sleep 0.1; done\n"));
  ASSERT_TRUE(test::eventually([&] { return std::filesystem::exists(state_ / "ready"); }));
  EXPECT_TRUE(deaf.end(100ms));
  EXPECT_TRUE(deaf.ended());
}

}  // namespace
}  // namespace meshloom::launch
