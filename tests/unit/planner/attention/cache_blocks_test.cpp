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
    for (std::int64_t p = begin; p < end; ++p) {
      ASSERT_EQ(owner[static_cast<std::size_t>(p - begin)], p / kCacheBlock % ranks) << p;
      ASSERT_EQ(rank_of_position(p, ranks), p / kCacheBlock % ranks) << p;
    }
  }
}

TEST(CacheBlocks, NoRankKeepsMoreThanABlockBeyondItsShare) {
  for (const int ranks : {1, 2, 3, 8})
    for (std::int64_t length = 0; length < 3000; length += 7)
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_LE(count_kept_by_rank(rank, ranks, {0, length}), length / ranks + kCacheBlock);
}

TEST(CacheBlocks, PassesAreSharedWhereNoRankHasMostOfThem) {
  EXPECT_FALSE(shares_pass(1, {0, 1000}));
  for (const int ranks : {2, 3, 5}) {
    EXPECT_FALSE(shares_pass(ranks, {0, 1}));
    EXPECT_FALSE(shares_pass(ranks, {0, kCacheBlock})) << "one block";
    EXPECT_FALSE(shares_pass(ranks, {0, kCacheBlock + 1})) << "a position beyond it";
    EXPECT_TRUE(shares_pass(ranks, {0, 2 * kCacheBlock}));
    EXPECT_TRUE(shares_pass(ranks, {kCacheBlock / 2, 3 * kCacheBlock / 2})) << "halves of two";
  }
  // 64 of 86 are less than three quarters, of 85 more.
  EXPECT_TRUE(shares_pass(2, {0, 86}));
  EXPECT_FALSE(shares_pass(2, {0, 85}));
}

TEST(CacheBlocks, AnEvenPassGivesAllRanksAsMany) {
  EXPECT_EQ(even_pass(1, 128), 128);
  EXPECT_EQ(even_pass(2, 128), 128);
  EXPECT_EQ(even_pass(3, 128), 192);
  EXPECT_EQ(even_pass(5, 128), 320);
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const std::int64_t least : {1, 64, 100, 128, 1000}) {
      const std::int64_t pass = even_pass(ranks, least);
      EXPECT_GE(pass, least);
      for (std::int64_t pass_index = 0; pass_index < 3; ++pass_index)
        for (int rank = 0; rank < ranks; ++rank)
          EXPECT_EQ(count_kept_by_rank(rank, ranks, {pass_index * pass, (pass_index + 1) * pass}),
                    pass / ranks);
    }
}

}  // namespace
}  // namespace meshloom::planner
