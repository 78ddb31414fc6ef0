// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "daemon/control/host/memory.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kBytes = std::int64_t{96} << 20;

TEST(ProcessMemory, ThePeakBeginsAnew) {
  {
    std::vector<char> much(static_cast<std::size_t>(kBytes), 1);
    EXPECT_GE(process_memory().resident, kBytes) << static_cast<int>(much.back());
  }
  const std::int64_t before = process_memory().peak;
  EXPECT_GE(before, kBytes);
  give_back_free_memory();
  begin_peak_memory();
  const MemoryUse after = process_memory();
  if (after.peak == before) GTEST_SKIP() << "this kernel does not reset a process's peak";
  EXPECT_LT(after.peak, before - kBytes / 2);
  EXPECT_GE(after.peak, after.resident);
}

}  // namespace
}  // namespace meshloom::control
