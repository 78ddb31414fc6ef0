// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/score_pieces.h"

#include <gtest/gtest.h>

namespace meshloom::kernels::cuda {
namespace {

// Each score's number of pieces, which must be 1, and the largest piece.
std::int64_t check_cover(const ScoreSizes& sizes, std::int64_t most) {
  std::vector<int> seen(
      static_cast<std::size_t>(sizes.batch * sizes.kv_heads * sizes.group * sizes.queries), 0);
  std::int64_t largest = 0;
  for (const ScorePiece& p : score_pieces(sizes, most)) {
    largest = std::max(largest, p.rows() * p.keys);
    EXPECT_EQ(p.keys, sizes.keys);
    EXPECT_EQ(p.group, sizes.group);
    for (std::int64_t b = p.batch; b < p.batch + p.batches; ++b)
      for (std::int64_t h = p.kv_head; h < p.kv_head + p.kv_heads; ++h)
        for (std::int64_t g = p.in_group; g < p.in_group + p.grouped; ++g)
          for (std::int64_t q = p.query; q < p.query + p.queries; ++q)
            ++seen[static_cast<std::size_t>(
                ((b * sizes.kv_heads + h) * sizes.group + g) * sizes.queries + q)];
  }
  for (const int count : seen) EXPECT_EQ(count, 1);
  return largest;
}

TEST(ScorePieces, OnePieceWhereAllFits) {
  const ScoreSizes sizes{2, 3, 4, 5, 6};
  EXPECT_EQ(score_pieces(sizes, 720).size(), 1u);
  EXPECT_EQ(check_cover(sizes, 720), 720);
}

TEST(ScorePieces, CutsTheOutermostDimThatItMust) {
  const ScoreSizes sizes{2, 3, 4, 5, 6};
  EXPECT_EQ(score_pieces(sizes, 719).size(), 2u) << "batch rows";
  EXPECT_EQ(score_pieces(sizes, 359).size(), 4u) << "two key heads, then one";
  EXPECT_EQ(score_pieces(sizes, 119).size(), 12u) << "three query heads, then one";
  EXPECT_EQ(score_pieces(sizes, 29).size(), 48u) << "four queries, then one";
}

TEST(ScorePieces, CoverAllOnceWithinTheLimit) {
  const ScoreSizes sizes{2, 3, 4, 5, 6};
  for (std::int64_t most = 6; most <= 720; most += 7) EXPECT_LE(check_cover(sizes, most), most);
  EXPECT_EQ(check_cover(sizes, 1), 6) << "one query at least";
}

TEST(ScorePieces, NothingHasNoPieces) {
  EXPECT_TRUE(score_pieces({0, 3, 4, 5, 6}, 100).empty());
  EXPECT_TRUE(score_pieces({2, 3, 4, 0, 6}, 100).empty());
}

}  // namespace
}  // namespace meshloom::kernels::cuda
