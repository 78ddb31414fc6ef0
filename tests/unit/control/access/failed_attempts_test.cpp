// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/failed_attempts.h"

#include <gtest/gtest.h>

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

TEST(FailedAttempts, FiveASecondAreTaken) {
  FailedAttempts attempts;
  const auto begin = FailedAttempts::Clock::now();
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(attempts.is_barred("a", begin + i * 10ms)) << i;
    attempts.failed("a", begin + i * 10ms);
  }
  EXPECT_TRUE(attempts.is_barred("a", begin + 50ms));
  EXPECT_FALSE(attempts.is_barred("b", begin + 50ms)) << "others are not";
  EXPECT_TRUE(attempts.is_barred("a", begin + 999ms));
  EXPECT_FALSE(attempts.is_barred("a", begin + 1001ms)) << "the first is a second ago";
}

TEST(FailedAttempts, ManySourcesTakeBoundedMemory) {
  FailedAttempts attempts;
  const auto now = FailedAttempts::Clock::now();
  for (int i = 0; i < 3 * static_cast<int>(FailedAttempts::kMostSources); ++i)
    attempts.failed(std::to_string(i), now + std::chrono::microseconds(i));
  const auto later = now + 100ms;
  for (int i = 0; i < 5; ++i) attempts.failed("last", later);
  EXPECT_TRUE(attempts.is_barred("last", later));
}

}  // namespace
}  // namespace meshloom::control
