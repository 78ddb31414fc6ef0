// SPDX-License-Identifier: Apache-2.0
#include "planner/dim_order.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

std::vector<std::int64_t> elements(const IndexRanges& ranges) {
  std::vector<std::int64_t> list;
  for (const ShardRange& range : ranges)
    for (std::int64_t i = range.begin; i < range.end; ++i) list.push_back(i);
  return list;
}

TEST(DimOrder, ShardsFusedProjectionByHeads) {
  // q, k, v of 3 heads of 2 elements over 2 parts: heads 0 and 1 go to part 0.
  const auto order = DimOrder::blocked(18, 2, 3, 2);
  EXPECT_EQ(order->part(0), (IndexRanges{{0, 4}, {6, 10}, {12, 16}}));
  EXPECT_EQ(order->part(1), (IndexRanges{{4, 6}, {10, 12}, {16, 18}}));
  EXPECT_EQ(order->part_size(0), 12);
  EXPECT_FALSE(order->plain());
  EXPECT_EQ(to_string(*order), "blocked(3x2)");
}

TEST(DimOrder, BlockedMatchesElementByElementDefinition) {
  for (int groups = 1; groups <= 3; ++groups)
    for (std::int64_t stretch = 0; stretch <= 11; ++stretch)
      for (std::int64_t unit = 1; unit <= 4; ++unit)
        for (int parts = 1; parts <= 5; ++parts) {
          const auto order = DimOrder::blocked(groups * stretch, parts, groups, unit);
          const std::int64_t units = (stretch + unit - 1) / unit;
          std::vector<std::vector<std::int64_t>> expected(static_cast<std::size_t>(parts));
          for (std::int64_t i = 0; i < groups * stretch; ++i)
            for (int p = 0; p < parts; ++p) {
              const ShardRange held = shard_range(units, parts, p);
              const std::int64_t at = i % stretch / unit;
              if (at >= held.begin && at < held.end)
                expected[static_cast<std::size_t>(p)].push_back(i);
            }
          for (int p = 0; p < parts; ++p) {
            EXPECT_EQ(elements(order->part(p)), expected[static_cast<std::size_t>(p)]);
            EXPECT_EQ(order->part_size(p),
                      static_cast<std::int64_t>(expected[static_cast<std::size_t>(p)].size()));
          }
        }
}

TEST(DimOrder, KeepsTheOrderOfAList) {
  const auto zigzag = DimOrder::listed(8, {{{6, 8}, {0, 2}}, {{2, 4}, {4, 6}}});
  EXPECT_EQ(zigzag->part(0), (IndexRanges{{6, 8}, {0, 2}}));
  EXPECT_EQ(zigzag->part(1), (IndexRanges{{2, 6}}));  // neighbours are merged
  EXPECT_EQ(zigzag->groups(), 0);
}

TEST(DimOrder, DigestIsThatOfTheContent) {
  const auto blocked = DimOrder::blocked(12, 2, 3, 1);
  const auto listed = DimOrder::listed(12, {blocked->part(0), blocked->part(1)});
  EXPECT_EQ(blocked->digest(), listed->digest());
  const auto swapped = DimOrder::listed(12, {blocked->part(1), blocked->part(0)});
  EXPECT_NE(blocked->digest(), swapped->digest());
  EXPECT_NE(DimOrder::listed(4, {{{0, 4}}})->digest(), DimOrder::listed(5, {{{0, 5}}})->digest());
}

TEST(DimOrder, KnowsTheCeilRule) {
  EXPECT_TRUE(DimOrder::blocked(128, 2, 1, 64)->plain());
  EXPECT_TRUE(DimOrder::blocked(7, 3, 1, 1)->plain());
  EXPECT_TRUE(DimOrder::blocked(6, 1, 3, 2)->plain());
  EXPECT_FALSE(DimOrder::blocked(192, 2, 1, 64)->plain());
  EXPECT_TRUE(DimOrder::listed(3, {{{0, 1}}, {{1, 2}}, {{2, 3}}, {}})->plain());
}

using Rows = std::vector<std::vector<IndexRanges>>;

TEST(DimOrder, HoldsOtherElementsInEveryRow) {
  // Two sequences of documents of 4 + 4 and 2 + 6 elements, head and tail of each document to part
  // 0.
  const Rows rows = {{{{0, 1}, {3, 5}, {7, 8}}, {{1, 3}, {5, 7}}},
                     {{{0, 2}, {2, 3}, {7, 8}}, {{3, 7}}}};
  const DimOrderPtr order = DimOrder::listed_by_row(8, 1, rows);
  EXPECT_TRUE(order->by_row());
  EXPECT_EQ(order->row_dim(), 1);
  EXPECT_EQ(order->rows(), 2);
  EXPECT_EQ(order->parts(), 2);
  EXPECT_EQ(order->groups(), 0);
  EXPECT_EQ(order->part_size(1), 4);
  EXPECT_EQ(order->largest_part(), 4);
  EXPECT_EQ(order->part(0, 0), (IndexRanges{{0, 1}, {3, 5}, {7, 8}}));
  EXPECT_EQ(order->part(0, 1), (IndexRanges{{0, 3}, {7, 8}}));  // neighbours are merged
  EXPECT_FALSE(order->plain());
  EXPECT_THROW(order->part(0), InvalidArgument);
  EXPECT_THROW(order->part(0, 2), InvalidArgument);
  EXPECT_NE(to_string(*order).find("by row of dim 1"), std::string::npos);
}

TEST(DimOrder, RowsThatAreAlikeAreOneList) {
  const std::vector<IndexRanges> row = {{{2, 4}, {0, 1}}, {{1, 2}}};
  const DimOrderPtr order = DimOrder::listed_by_row(4, 0, {row, row, row});
  EXPECT_FALSE(order->by_row());
  EXPECT_EQ(order->digest(), DimOrder::listed(4, row)->digest());
  EXPECT_TRUE(DimOrder::listed_by_row(3, 0, {{{{0, 2}}, {{2, 3}}}})->plain());
}

TEST(DimOrder, DigestTellsRowsApart) {
  const std::vector<IndexRanges> a = {{{0, 2}}, {{2, 4}}}, b = {{{1, 3}}, {{0, 1}, {3, 4}}};
  const DimOrderPtr order = DimOrder::listed_by_row(4, 0, {a, b});
  EXPECT_EQ(order->digest(), DimOrder::listed_by_row(4, 0, {a, b})->digest());
  EXPECT_NE(order->digest(), DimOrder::listed_by_row(4, 0, {b, a})->digest());
  EXPECT_NE(order->digest(), DimOrder::listed_by_row(4, 0, {a, b, b})->digest());
  EXPECT_NE(order->digest(), DimOrder::listed(4, a)->digest());
  const DimOrderPtr moved = DimOrder::with_row_dim(order, 2);
  EXPECT_EQ(moved->row_dim(), 2);
  EXPECT_NE(moved->digest(), order->digest());
  EXPECT_EQ(moved->lists_digest(), order->lists_digest());
  EXPECT_EQ(moved->digest(), DimOrder::listed_by_row(4, 2, {a, b})->digest());
  EXPECT_EQ(moved->part(1, 1), order->part(1, 1));
  EXPECT_EQ(DimOrder::with_row_dim(order, 0), order);
  const DimOrderPtr plain = DimOrder::blocked(4, 2, 2, 1);
  EXPECT_EQ(DimOrder::with_row_dim(plain, 1), plain);
}

TEST(DimOrder, RefusesRowsThatAreNoShardings) {
  const std::vector<IndexRanges> even = {{{0, 2}}, {{2, 4}}}, uneven = {{{0, 3}}, {{3, 4}}},
                                 torn = {{{0, 2}}, {{3, 4}}}, three = {{{0, 2}}, {{2, 4}}, {}};
  try {
    DimOrder::listed_by_row(4, 0, {even, uneven});
    ADD_FAILURE() << "parts of other sizes were taken";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("3 elements in row 1 but 2 in row 0"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(DimOrder::listed_by_row(4, 0, {even, torn}), InvalidArgument);
  EXPECT_THROW(DimOrder::listed_by_row(4, 0, {even, three}), InvalidArgument);
  EXPECT_THROW(DimOrder::listed_by_row(4, -1, {even, even}), InvalidArgument);
  EXPECT_THROW(DimOrder::listed_by_row(4, 0, {}), InvalidArgument);
  EXPECT_THROW(DimOrder::listed_by_row(4, 0, {{}}), InvalidArgument);
}

TEST(DimOrder, RefusesWhatIsNoSharding) {
  EXPECT_THROW(DimOrder::blocked(7, 2, 3, 1), InvalidArgument);
  EXPECT_THROW(DimOrder::blocked(6, 0, 3, 1), InvalidArgument);
  EXPECT_THROW(DimOrder::blocked(6, 2, 3, 0), InvalidArgument);
  EXPECT_THROW(DimOrder::listed(4, {{{0, 3}}, {{2, 4}}}), InvalidArgument);
  EXPECT_THROW(DimOrder::listed(4, {{{0, 1}}, {{2, 4}}}), InvalidArgument);
  EXPECT_THROW(DimOrder::listed(4, {{{0, 3}}}), InvalidArgument);
  EXPECT_THROW(DimOrder::listed(4, {{{0, 5}}}), InvalidArgument);
  EXPECT_THROW(DimOrder::listed(4, {}), InvalidArgument);
  EXPECT_THROW(DimOrder::blocked(6, 2, 3, 1)->part(2), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::planner
