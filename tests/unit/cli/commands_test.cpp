// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/option_names.h"
#include "tests/unit/cli/program.h"

namespace meshloom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The parser of the whole program.
TEST(Commands, NoTwoOptionsOfACommandShareAName) {
  EXPECT_THAT(test::SharedOptionNames::of(Program().app), IsEmpty());
}

TEST(Commands, TheWalkSeesPositionalsGroupsAndOptionsThatFallThrough) {
  CLI::App app("test", "meshloom");
  bool flag = false;
  std::string text;
  app.add_flag("--json", flag);
  auto* below = app.add_subcommand("job")->add_subcommand("show");
  below->add_option("--json-file,-j", text);
  auto* group = below->add_option_group("source");
  EXPECT_THAT(test::SharedOptionNames::of(app), IsEmpty());
  group->add_option("--file", text);
  below->add_option("--json", text);
  below->add_option("-f,file", text);
  EXPECT_THAT(
      test::SharedOptionNames::of(app),
      ElementsAre("meshloom job show: --json and --json", "meshloom job show: file,-f and --file"));
}

TEST(Commands, ResumeTakesTheJobAndANameForTheNewOne) {
  Program program;
  EXPECT_NO_THROW(program.app.parse("job resume job-1 --name again --address 127.0.0.1:1"));
  EXPECT_TRUE(program.context.action);
  EXPECT_EQ(program.context.asked.address, "127.0.0.1:1");
}

TEST(Commands, SeveralFilesOfDataNeedNoSlashBehindTheirFolder) {
  Program program;
  EXPECT_NO_THROW(program.app.parse("upload a.txt b.txt --data corpus"));
  EXPECT_TRUE(program.context.action);
}

}  // namespace
}  // namespace meshloom::cli
