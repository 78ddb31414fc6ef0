// SPDX-License-Identifier: Apache-2.0
// Compares lists of numbers, and stops at the first that differ.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace meshloom::testing {

/// Within tolerance * (1 + |want|) for all elements; infinities are equal.
inline void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                        double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i])) {
      ASSERT_EQ(got[i], want[i]) << what << " at " << i;
      continue;
    }
    ASSERT_FALSE(std::isnan(got[i])) << what << " at " << i;
    ASSERT_NEAR(got[i], want[i], tolerance * (1.0 + std::abs(want[i]))) << what << " at " << i;
  }
}

}  // namespace meshloom::testing
