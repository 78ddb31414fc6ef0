// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/start_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>

#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::launch {
namespace {

using namespace std::chrono_literals;

class StartCheckTest : public ::testing::Test {
 protected:
  /// A shell script stands for meshloomd.
  StartCheck check(const std::string& script) const {
    const auto program = folder_.write("meshloomd", "#!/bin/sh\n" + script);
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    LaunchOptions options;
    options.meshloomd = program;
    options.flags = {"--threads", "3"};
    return check_start(options);
  }

  test::TempFolder folder_;
};

constexpr const char* kTold =
    "[ \"$*\" = '--threads 3 --check' ] || exit 1\n"
    "echo '{\"state_dir\": \"/a/state/\", \"listen_given\": true, "
    "\"address_problem\": \"cannot listen on it\"}'\n";

TEST_F(StartCheckTest, TellsWhatTheDaemonMakesOfItsFlags) {
  const StartCheck told = check(kTold);
  EXPECT_EQ(told.state_dir, "/a/state");
  EXPECT_TRUE(told.listen_given);
  EXPECT_EQ(told.address_problem, "cannot listen on it");
}

TEST_F(StartCheckTest, ARefusalIsToldInTheDaemonsWords) {
  try {
    check("echo 'meshloomd: --threads is 0' >&2\nexit 2\n");
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "--threads is 0");
  }
  EXPECT_THROW(check("exit 1\n"), FailedPrecondition);
  EXPECT_THROW(check("kill -9 $$\n"), FailedPrecondition);
  EXPECT_THROW(check("echo some help\n"), InvalidArgument);
}

// As programs are that were started by one that ignores its children.
TEST_F(StartCheckTest, WithChildrenThatAreIgnoredItsEndIsSeenAllTheSame) {
  ::signal(SIGCHLD, SIG_IGN);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(check(kTold).state_dir, "/a/state");
  EXPECT_THROW(check("exit 2\n"), InvalidArgument);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_EQ(::signal(SIGCHLD, SIG_DFL), SIG_IGN) << "it is as it was";
}

}  // namespace
}  // namespace meshloom::launch
