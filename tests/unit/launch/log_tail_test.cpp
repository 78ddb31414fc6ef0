// SPDX-License-Identifier: Apache-2.0
#include "daemon/launch/log_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace meshloom::launch {
namespace {

const std::string kRule(74, '-');

TEST(LogTail, IsTheLastLines) {
  const test::TempFolder folder;
  EXPECT_EQ(last_lines(folder / "missing", 3), "");
  EXPECT_EQ(last_lines(folder.write("log", "a\nb\n\nc\nd"), 3), "b\nc\nd\n");
  EXPECT_EQ(last_lines(folder.write("log", "a\n"), 3), "a\n");
}

TEST(LogTail, LeavesOutThatAProcessFailed) {
  const test::TempFolder folder;
  const std::string log = "meshloomd: cannot listen\n" + kRule +
                          "\nPrimary job  terminated normally, but 1 process returned\na non-zero "
                          "exit code. Per user-direction, the job has been aborted.\n" +
                          kRule + "\n" + kRule +
                          "\nmpirun detected that one or more processes exited with non-zero "
                          "status, thus causing\nthe job to be terminated.\n\n  Exit code:    2\n" +
                          kRule + "\n";
  EXPECT_EQ(last_lines(folder.write("log", log), 5), "meshloomd: cannot listen\n");
}

TEST(LogTail, KeepsWhatMpirunSaysOfACause) {
  const test::TempFolder folder;
  const std::string log = kRule + "\nThere are not enough slots available\n" + kRule + "\n";
  EXPECT_THAT(last_lines(folder.write("log", log), 5), ::testing::HasSubstr("not enough slots"));
  EXPECT_THAT(last_lines(folder.write("log", kRule + "\nopen end\n"), 5),
              ::testing::HasSubstr("open end"));
}

TEST(LogTail, IsShortAndOfPrintableText) {
  const test::TempFolder folder;
  const std::string text =
      last_lines(folder.write("log", std::string(1 << 20, 'x') + "\n\x1b[31mred\xff\n"), 2);
  EXPECT_LT(text.size(), 3000u);
  EXPECT_THAT(text, ::testing::HasSubstr("\\x1b[31mred\\xff\n"));
}

}  // namespace
}  // namespace meshloom::launch
