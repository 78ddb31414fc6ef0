// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/peak_flops.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temp_folder.h"

namespace meshloom::base {
namespace {

TEST(PeakFlops, IsUsedWhereItWasMeasuredAlone) {
  const test::TempFolder state;
  EXPECT_FALSE(read_peak_flops(state.path(), "avx2", 2));
  write_peak_flops(state.path(), {"avx2", 2, 1.5e11, 3e11});
  const auto peak = read_peak_flops(state.path(), "avx2", 2);
  ASSERT_TRUE(peak);
  EXPECT_EQ(peak->of("float32"), 1.5e11);
  EXPECT_EQ(peak->of("bfloat16"), 3e11);
  EXPECT_FALSE(read_peak_flops(state.path(), "avx512", 2));
  EXPECT_FALSE(read_peak_flops(state.path(), "avx2", 1));
  std::ofstream(state / "peak_flops.json") << "{\"threads\": 2";
  EXPECT_FALSE(read_peak_flops(state.path(), "avx2", 2)) << "a daemon trains without it";
}

}  // namespace
}  // namespace meshloom::base
