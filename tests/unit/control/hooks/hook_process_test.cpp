// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/hooks/hook_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

HookEnd run(const std::string& command, const std::string& input = "",
            std::chrono::milliseconds limit = 10s) {
  const std::atomic<bool> stop{false};
  return run_hook({.command = command,
                   .input = input,
                   .variables = {{"MESHLOOM_REASON", std::string("a\nb\0c\xff", 6)}},
                   .limit = limit},
                  stop);
}

TEST(HookProcess, HasTheEventItsVariablesAndNoneOfTheLauncher) {
  ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  const HookEnd end =
      run("cat; echo \"[$MESHLOOM_REASON] [$OMPI_COMM_WORLD_RANK]\" >&2", "event\n");
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  EXPECT_TRUE(end.ok);
  EXPECT_EQ(end.what, "exit code 0");
  EXPECT_EQ(end.output, "event\n[a\\x0ab\\x00c\\xff] []\n");
}

TEST(HookProcess, TellsHowItHasEnded) {
  EXPECT_EQ(run("exit 3").what, "exit code 3");
  EXPECT_EQ(run("/no/such/program").what, "exit code 127");
  EXPECT_EQ(run("kill -9 $$").what, "signal 9");
  EXPECT_FALSE(run("exit 3").ok);
}

TEST(HookProcess, OneThatHangsIsKilledWithItsChildren) {
  const auto begin = Clock::now();
  const HookEnd end = run("sleep 60 & sleep 60", "", 200ms);
  EXPECT_FALSE(end.ok);
  EXPECT_EQ(end.what, "killed after 0.2 s");
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(HookProcess, OneThatLeavesChildrenIsNotWaitedFor) {
  const auto begin = Clock::now();
  EXPECT_TRUE(run("sleep 60 & echo done").ok);
  EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(HookProcess, AFloodOfOutputIsReadAndCut) {
  const HookEnd end = run("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2");
  EXPECT_TRUE(end.ok);
  EXPECT_EQ(end.output, std::string(16 << 10, 'x'));
}

TEST(HookProcess, DoesNotReadWhatItDoesNotWant) {
  EXPECT_TRUE(run("true", std::string(1 << 20, 'e')).ok);
}

TEST(HookProcess, HasNoneOfTheDaemonsDescriptors) {
  const HookEnd end = run("ls /proc/self/fd | wc -l");
  EXPECT_THAT(end.output, HasSubstr("4"));  // three of its own, and the folder
}

TEST(HookProcess, AStopKillsIt) {
  std::atomic<bool> stop{false};
  std::thread later([&] {
    std::this_thread::sleep_for(100ms);
    stop = true;
  });
  const HookEnd end = run_hook({.command = "sleep 60", .input = "", .variables = {}}, stop);
  later.join();
  EXPECT_EQ(end.what, "killed, since the daemon stops");
}

}  // namespace
}  // namespace meshloom::control
