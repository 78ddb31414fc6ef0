// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <vector>

namespace meshloom {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

std::set<Range> ranges(int threads, std::int64_t n, std::int64_t grain) {
  std::set<Range> out;
  std::mutex mutex;
  parallel_for({threads}, n, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    out.insert({begin, end});
  });
  return out;
}

TEST(ParallelFor, CoversEverythingOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const std::int64_t n : {0, 1, 2, 7, 100, 1001}) {
      for (const std::int64_t grain : {1, 3, 50, 5000}) {
        std::int64_t next = 0;
        for (const auto& [begin, end] : ranges(threads, n, grain)) {
          EXPECT_EQ(begin, next);
          EXPECT_LT(begin, end);
          next = end;
        }
        EXPECT_EQ(next, n);
      }
    }
  }
}

TEST(ParallelFor, SplitsTheSameWayEveryTime) {
  const std::set<Range> first = ranges(3, 1000, 10);
  EXPECT_EQ(first.size(), 3u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ranges(3, 1000, 10), first);
}

TEST(ParallelFor, SmallLoopsStayOnTheCaller) {
  EXPECT_EQ(ranges(4, 100, 100).size(), 1u);
  EXPECT_EQ(ranges(4, 150, 100).size(), 2u);
}

TEST(ParallelFor, ExceptionsReachTheCaller) {
  for (const int threads : {1, 4})
    EXPECT_THROW(parallel_for({threads}, 100, 1,
                              [](std::int64_t begin, std::int64_t) {
                                if (begin == 0) throw std::runtime_error("from a worker");
                              }),
                 std::runtime_error);
}

TEST(ParallelDynamic, RunsEveryItemOnce) {
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t n : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> seen(n);
      parallel_dynamic({threads}, n, [&](std::int64_t item) { seen[item].fetch_add(1); });
      for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ParallelDynamic, ExceptionsReachTheCaller) {
  EXPECT_THROW(parallel_dynamic({3}, 50,
                                [](std::int64_t item) {
                                  if (item == 17) throw std::runtime_error("from a worker");
                                }),
               std::runtime_error);
}

}  // namespace
}  // namespace meshloom
