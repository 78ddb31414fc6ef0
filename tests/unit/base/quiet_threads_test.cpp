// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/quiet_threads.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "tests/support/file_text.h"

namespace meshloom::base {
namespace {

using ::testing::HasSubstr;

constexpr int kWentOn = 7;

/// What this program is when it is executed anew: run by the tests below alone.
TEST(QuietThreads, DISABLED_Shows) {
  const char* count = std::getenv("GOMP_SPINCOUNT");
  const std::string name = test::file_text("/proc/self/comm");
  const std::string line = test::file_text("/proc/self/cmdline");
  fmt::print("pid {} count {} name {} called {}\n", ::getpid(), count ? count : "none",
             name.substr(0, name.find('\n')), line.c_str());
}

struct Ended {
  pid_t pid = 0;
  int code = -1;
  std::string output;
};

/// A child in which the variables are what `set` makes them, and which then begins as a program
/// called "other-name".
Ended begin(const std::function<void()>& set) {
  int pipe[2] = {-1, -1};
  EXPECT_EQ(::pipe(pipe), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(pipe[1], STDOUT_FILENO);
    ::close(pipe[0]);
    ::close(pipe[1]);
    ::unsetenv("GOMP_SPINCOUNT");
    ::unsetenv("OMP_WAIT_POLICY");
    set();
    std::string words[] = {"other-name", "--gtest_also_run_disabled_tests",
                           "--gtest_filter=QuietThreads.DISABLED_Shows"};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    use_quiet_threads(argv);
    ::_exit(kWentOn);
  }
  ::close(pipe[1]);
  Ended ended{pid, -1, {}};
  char piece[4096];
  for (ssize_t size; (size = ::read(pipe[0], piece, sizeof piece)) > 0;)
    ended.output.append(piece, static_cast<std::size_t>(size));
  ::close(pipe[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

TEST(QuietThreads, TheProcessStaysTheSameWithTheCountSet) {
  const Ended ended = begin([] {});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.output,
              HasSubstr(fmt::format("pid {} count {} name unit_base called other-name", ended.pid,
                                    kSpinCount)));
}

TEST(QuietThreads, WhatTheUserHasSetStays) {
  EXPECT_EQ(begin([] { ::setenv("GOMP_SPINCOUNT", "5", 1); }).code, kWentOn);
  EXPECT_EQ(begin([] { ::setenv("GOMP_SPINCOUNT", "infinity", 1); }).code, kWentOn);
  EXPECT_EQ(begin([] { ::setenv("OMP_WAIT_POLICY", "active", 1); }).code, kWentOn);
}

}  // namespace
}  // namespace meshloom::base
