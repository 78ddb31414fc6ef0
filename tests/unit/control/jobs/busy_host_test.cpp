// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/busy_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// The findings of so many steps, in which threads ran and waited for so long.
std::vector<BusyHost::Finding> findings(BusyHost& host, int steps, double seconds,
                                        const train::CoreTimes& times) {
  std::vector<BusyHost::Finding> found;
  for (int i = 0; i < steps; ++i)
    if (const auto finding = host.add(seconds, times)) found.push_back(*finding);
  return found;
}

TEST(BusyHost, StepsOfFreeCoresAreNoFinding) {
  BusyHost host;
  EXPECT_TRUE(findings(host, 1000, 0.1, {0.095, 0.002}).empty());
  EXPECT_TRUE(findings(host, 1000, 0.1, {0.04, 0.056}).empty()) << "just below the bound";
  EXPECT_TRUE(findings(host, 1000, 0.1, {1.5, 0.1}).empty()) << "of sixteen threads";
}

TEST(BusyHost, ARankThatSleepsUntilOthersHaveSentIsNoFinding) {
  BusyHost host;
  EXPECT_TRUE(findings(host, 1000, 0.1, {0.002, 0.0}).empty());
  EXPECT_TRUE(findings(host, 1000, 0.1, {0.002, 0.02}).empty()) << "it wakes up late";
}

TEST(BusyHost, ItTakesStepsAndSeconds) {
  BusyHost few;
  EXPECT_TRUE(findings(few, BusyHost::kLeastSteps - 1, 100.0, {1.0, 99.0}).empty());
  EXPECT_EQ(findings(few, 1, 100.0, {1.0, 99.0}).size(), 1u);
  BusyHost shortly;
  EXPECT_TRUE(findings(shortly, 29, 0.1, {0.01, 0.09}).empty()) << "below three seconds";
}

TEST(BusyHost, TheFindingHasTheFactorOfItsSteps) {
  BusyHost host;
  const auto found = findings(host, 8, 0.5, {0.25, 0.75});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].steps, 6);
  EXPECT_DOUBLE_EQ(found[0].seconds, 3.0);
  EXPECT_DOUBLE_EQ(found[0].factor, 4.0);
  const std::string note = busy_host_note(found[0]);
  EXPECT_THAT(note, StartsWith(kBusyHost));
  EXPECT_THAT(note, HasSubstr("in 6 steps of 3.0 s together the threads of a rank had a core in "
                              "25 % of the time"));
}

TEST(BusyHost, ABusyTimeIsFoundBehindAQuietOne) {
  BusyHost host;
  EXPECT_TRUE(findings(host, 600, 0.01, {0.01, 0.0}).empty());
  EXPECT_FALSE(findings(host, 60, 0.1, {0.01, 0.09}).empty());
}

TEST(BusyHost, StepsThatTellNothingCountForNothing) {
  BusyHost host;
  EXPECT_TRUE(findings(host, 100, 1.0, {}).empty());
  EXPECT_TRUE(findings(host, 100, 0.0, {0.1, 0.9}).empty());
}

TEST(CoreTimes, AreSummedOverThreads) {
  const test::TempFolder folder;
  EXPECT_FALSE(train::read_core_times(folder / "none"));
  folder.write("tasks/1/stat", "a kernel without schedstat");
  EXPECT_FALSE(train::read_core_times(folder / "tasks"));
  folder.write("tasks/1/schedstat", "2000000000 500000000 17\n");
  folder.write("tasks/2/schedstat", "1000000000 0 1\n");
  folder.write("tasks/3/schedstat", "");
  const auto times = train::read_core_times(folder / "tasks");
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->ran, 3.0);
  EXPECT_DOUBLE_EQ(times->waited, 0.5);
  const train::CoreTimes since = train::core_times_between({1.0, 1.0}, *times);
  EXPECT_DOUBLE_EQ(since.ran, 2.0);
  EXPECT_DOUBLE_EQ(since.waited, 0.0) << "a thread that waited has ended";
}

TEST(CoreTimes, OfWhoSleepsAreNoWaiting) {
  const auto before = train::read_core_times();
  if (!before) GTEST_SKIP() << "this kernel has no schedstat";
  std::this_thread::sleep_for(300ms);
  const train::CoreTimes times = train::core_times_between(*before, *train::read_core_times());
  EXPECT_LT(times.waited, BusyHost::kLeastWaiting * 0.3);
  EXPECT_LT(times.ran, 0.3);
}

TEST(CoreTimes, OfMoreThreadsThanCoresAreWaiting) {
  const auto before = train::read_core_times();
  if (!before) GTEST_SKIP() << "this kernel has no schedstat";
  const auto end = std::chrono::steady_clock::now() + 500ms;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4 * std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([end] {
      while (std::chrono::steady_clock::now() < end) {
      }
      std::this_thread::sleep_for(200ms);
    });
  std::this_thread::sleep_until(end + 50ms);
  const auto after = train::read_core_times();
  for (std::thread& thread : threads) thread.join();
  const train::CoreTimes times = train::core_times_between(*before, *after);
  EXPECT_GT(times.waited, BusyHost::kLeastWaiting * 0.5);
  EXPECT_GT((times.ran + times.waited) / times.ran, BusyHost::kBusyFactor);
}

}  // namespace
}  // namespace meshloom::control
