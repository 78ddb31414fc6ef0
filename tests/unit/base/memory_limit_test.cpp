// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/memory_limit.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace meshloom::base {
namespace {

class MemoryLimitTest : public ::testing::Test {
 protected:
  void SetUp() override { write("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  1 kB\n"); }
  void write(const std::string& name, const std::string& text) { folder_.write(name, text); }
  MemoryLimit limit() const { return memory_limit(folder_ / "proc", folder_ / "cgroup"); }

  test::TempFolder folder_;
};

TEST_F(MemoryLimitTest, WithoutCgroupsItIsTheHosts) {
  EXPECT_EQ(limit().bytes, 1'024'000);
  EXPECT_EQ(limit().source, "MemTotal");
  write("proc/meminfo", "");
  EXPECT_EQ(limit().bytes, 0);
}

TEST_F(MemoryLimitTest, TheLeastOfACgroupAndThoseAboveItHolds) {
  write("proc/self/cgroup", "0::/slice/job\n");
  write("cgroup/slice/job/memory.max", "max\n");
  EXPECT_EQ(limit().source, "MemTotal");
  write("cgroup/slice/memory.max", "500000\n");
  EXPECT_EQ(limit().bytes, 500'000);
  EXPECT_EQ(limit().source, "cgroup limit");
  write("cgroup/slice/job/memory.max", "400000\n");
  EXPECT_EQ(limit().bytes, 400'000);
  write("cgroup/slice/job/memory.max", "9000000\n");
  EXPECT_EQ(limit().bytes, 500'000);
}

TEST_F(MemoryLimitTest, InAContainerTheMountsRootIsTheGroup) {
  write("cgroup/memory.max", "300000\n");
  for (const char* line : {"0::/\n", "0::/../..\n", "0::/only/on/the/host\n"}) {
    write("proc/self/cgroup", line);
    EXPECT_EQ(limit().bytes, 300'000) << line;
  }
}

TEST_F(MemoryLimitTest, Version1HasAMountForMemory) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory,hugetlb:/a\n0::/\n");
  write("cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limit().source, "MemTotal");
  write("cgroup/memory/a/memory.limit_in_bytes", "200000\n");
  EXPECT_EQ(limit().bytes, 200'000);
}

}  // namespace
}  // namespace meshloom::base
