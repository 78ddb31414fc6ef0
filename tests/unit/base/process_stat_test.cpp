// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/process_stat.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace meshloom::base {
namespace {

class ProcessStatTest : public ::testing::Test {
 protected:
  std::optional<ProcessStat> read(const std::string& text) const {
    std::ofstream(folder_ / "stat") << text;
    return read_process_stat(folder_ / "stat");
  }

  test::TempFolder folder_;
};

TEST_F(ProcessStatTest, FieldsAreFoundBehindAnyName) {
  for (const std::string name : {"mpirun", "a) b (c", ") S 1 2 3", ""}) {
    const auto stat =
        read("77 (" + name + ") T 5 6 7 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 1 0 900 0 0\n");
    ASSERT_TRUE(stat) << name;
    EXPECT_EQ(stat->name, name);
    EXPECT_EQ(stat->state, 'T');
    EXPECT_EQ(stat->parent, 5);
    EXPECT_EQ(stat->session, 7);
    EXPECT_EQ(stat->user_ticks, 50);
    EXPECT_EQ(stat->system_ticks, 60);
    EXPECT_EQ(stat->start_time, 900u);
    EXPECT_FALSE(stat->has_ended());
  }
  EXPECT_TRUE(read("77 (x) Z 5 6 7 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 900\n")->has_ended());
}

TEST_F(ProcessStatTest, WhatIsNotThereOrNotWholeIsNothing) {
  EXPECT_FALSE(read_process_stat(folder_ / "missing"));
  for (const char* text : {"", "77", "77 (x", "77 (x) S 5 6 7 0"}) EXPECT_FALSE(read(text)) << text;
}

TEST_F(ProcessStatTest, ThisProcessIsSeen) {
  const auto stat = read_process_stat(getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, getppid());
  EXPECT_EQ(stat->session, getsid(0));
  EXPECT_GT(stat->start_time, 0u);
}

}  // namespace
}  // namespace meshloom::base
