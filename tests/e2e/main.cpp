// SPDX-License-Identifier: Apache-2.0
// Runs what the filter names. A filter that names nothing is a mistake, which GoogleTest would call
// passed.
#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/cpu/cpu_device.h"

int main(int argc, char** argv) {
  meshloom::kernels::cpu::add_cpu_device();
  ::testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  if (::testing::UnitTest::GetInstance()->test_to_run_count() > 0 || GTEST_FLAG_GET(list_tests))
    return status;
  std::fprintf(stderr, "no test matches --gtest_filter=%s\n", GTEST_FLAG_GET(filter).c_str());
  return 1;
}
