// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/steady_timer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "tests/support/eventually.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

TEST(SteadyTimer, CallsInTheOrderOfTheirTimes) {
  std::mutex mutex;
  std::vector<int> called;
  SteadyTimer timer;
  const auto now = SteadyTimer::Clock::now();
  for (const int i : {3, 1, 2})
    timer.set(now + i * 20ms, [&, i] {
      const std::lock_guard lock(mutex);
      called.push_back(i);
    });
  EXPECT_TRUE(test::eventually([&] {
    const std::lock_guard lock(mutex);
    return called.size() == 3;
  }));
  EXPECT_GE(SteadyTimer::Clock::now() - now, 60ms);
  EXPECT_EQ(called, (std::vector<int>{1, 2, 3}));
}

TEST(SteadyTimer, WhatIsCancelledIsNotCalledAndHoldsNothing) {
  SteadyTimer timer;
  std::atomic<int> called = 0;
  const auto held = std::make_shared<int>(0);
  const auto number = timer.set(SteadyTimer::Clock::now() + 1h, [&, held] { ++called; });
  EXPECT_NE(number, 0);
  EXPECT_EQ(held.use_count(), 2);
  timer.cancel(number);
  EXPECT_EQ(held.use_count(), 1);
  timer.cancel(number);
  timer.cancel(0);
  timer.set(SteadyTimer::Clock::now(), [&] { ++called; });
  EXPECT_TRUE(test::eventually([&] { return called == 1; }));
  timer.set(SteadyTimer::Clock::now() + 1h, [&] { ++called; });
  timer.stop();
  EXPECT_EQ(called, 1);
}

TEST(SteadyTimer, ACallMaySetAndCancelOthers) {
  std::atomic<int> called = 0;
  SteadyTimer timer;
  const auto late = timer.set(SteadyTimer::Clock::now() + 1h, [&] { called += 100; });
  timer.set(SteadyTimer::Clock::now(), [&] {
    timer.cancel(late);
    timer.set(SteadyTimer::Clock::now(), [&] { ++called; });
  });
  EXPECT_TRUE(test::eventually([&] { return called == 1; }));
}

}  // namespace
}  // namespace meshloom::control
