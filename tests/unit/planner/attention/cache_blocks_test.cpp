// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/cache_blocks.h"

#include <gtest/gtest.h>

#include <random>

namespace meshloom::planner {
namespace {

TEST(CacheBlocks, EveryPositionIsKeptByTheRankOfItsBlock) {
  std::mt19937 random(3);
  for (int problem = 0; problem < 200; ++problem) {
    const int ranks = 1 + static_cast<int>(random() % 6);
    const std::int64_t begin = random() % 1000, end = begin + random() % 1000;
    std::vector<int> owner(static_cast<std::size_t>(end - begin), -1);
    for (int rank = 0; rank < ranks; ++rank) {
      const IndexRanges kept = kept_by_rank(rank, ranks, {begin, end});
      EXPECT_EQ(total_size(kept), count_kept_by_rank(rank, ranks, {begin, end}));
      std::int64_t last = -1;
      for (const ShardRange& range : kept)
        for (std::int64_t p = range.begin; p < range.end; ++p) {
          ASSERT_GT(p, last);
          last = p;
          owner.at(static_cast<std::size_t>(p)) = rank;
        }
    }
    for (std::int64_t p = begin; p < end; ++p)
      ASSERT_EQ(owner[static_cast<std::size_t>(p - begin)], p / kCacheBlock % ranks) << p;
  }
}

TEST(CacheBlocks, NoRankKeepsMoreThanABlockBeyondItsShare) {
  for (const int ranks : {1, 2, 3, 8})
    for (std::int64_t length = 0; length < 3000; length += 7)
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_LE(count_kept_by_rank(rank, ranks, {0, length}), length / ranks + kCacheBlock);
}

}  // namespace
}  // namespace meshloom::planner
