// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/usable_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "tests/support/temp_folder.h"

namespace meshloom::base {
namespace {

TEST(UsableCores, QuotasAreReadAsTheKernelWritesThem) {
  EXPECT_EQ(cores_of_quota("max 100000"), 0);
  EXPECT_EQ(cores_of_quota("200000 100000"), 2);
  EXPECT_EQ(cores_of_quota("150000 100000"), 2);
  EXPECT_EQ(cores_of_quota("50000 100000"), 1);
  EXPECT_EQ(cores_of_quota(""), 0);
}

TEST(UsableCores, WithoutTheFileThereIsNoQuota) {
  const test::TempFolder cgroups;
  EXPECT_EQ(core_quota(cgroups.path()), 0);
  cgroups.write("cpu.max", "300000 100000\n");
  EXPECT_EQ(core_quota(cgroups.path()), 3);
}

TEST(UsableCores, AreNoMoreThanTheAffinityMaskHas) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ::sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace meshloom::base
