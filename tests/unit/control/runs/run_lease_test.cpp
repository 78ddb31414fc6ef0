// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_lease.h"

#include <gtest/gtest.h>

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

TEST(RunLease, RunsOutWhenNothingRenewsIt) {
  const auto lease = std::make_shared<RunLease>(10s);
  const auto now = RunLease::Clock::now();
  EXPECT_FALSE(lease->has_run_out(false, now));
  EXPECT_TRUE(lease->has_run_out(false, now + 11s));
  EXPECT_GT(lease->left(), 9s);
  EXPECT_LE(lease->left(), 10s);
}

TEST(RunLease, WorkOfTheRunRenewsIt) {
  const auto lease = std::make_shared<RunLease>(10s);
  const auto later = RunLease::Clock::now() + 60s;
  EXPECT_FALSE(lease->has_run_out(true, later));
  EXPECT_FALSE(lease->has_run_out(false, later + 9s));
  EXPECT_TRUE(lease->has_run_out(false, later + 10s));
}

TEST(RunLease, DoesNotRunWhileItIsHeldByAnybody) {
  auto lease = std::make_shared<RunLease>(10s);
  auto first = lease->hold(), second = lease->hold();
  const auto later = RunLease::Clock::now() + 60s;
  EXPECT_TRUE(lease->is_held());
  EXPECT_FALSE(lease->has_run_out(false, later));
  first.release();
  EXPECT_TRUE(lease->is_held());
  EXPECT_FALSE(lease->has_run_out(false, later + 60s));
  second.release();
  EXPECT_FALSE(lease->is_held());
  // It begins anew when it is let go, which is before the moments that were asked about.
  EXPECT_LE(lease->left(), 10s);
  EXPECT_TRUE(lease->has_run_out(false, later));
}

TEST(RunLease, AHoldMayOutliveWhoMadeIt) {
  auto lease = std::make_shared<RunLease>(0s);
  EXPECT_EQ(lease->left(), 0ms);
  auto held = lease->hold();
  lease.reset();
  held.release();
}

}  // namespace
}  // namespace meshloom::control
