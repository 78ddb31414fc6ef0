// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/mask.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/planner/attention/random_rows.h"

namespace meshloom::planner::test {
namespace {

ShardRange random_range(Generator& generator, std::int64_t size) {
  const std::int64_t begin = draw(generator, 0, size);
  return {begin, draw(generator, begin, size)};
}

std::int64_t counted(const AttentionMask& mask, std::span<const std::int64_t> ids,
                     ShardRange queries, ShardRange keys) {
  std::int64_t area = 0;
  for (std::int64_t i = queries.begin; i < queries.end; ++i)
    for (std::int64_t j = keys.begin; j < keys.end; ++j) area += sees(mask, ids, i, j) ? 1 : 0;
  return area;
}

TEST(AttentionMask, AreasAndVisibleKeysAreThoseOfEveryPair) {
  Generator generator(1);
  for (int i = 0; i < 3000; ++i) {
    const AttentionMask mask = random_mask(generator);
    const std::int64_t size = draw(generator, 1, 24);
    const ShardRange queries = random_range(generator, size), keys = random_range(generator, size);
    ASSERT_EQ(visible_area(mask, queries, keys), counted(mask, {}, queries, keys));
    const ShardRange visible = visible_keys(mask, queries, size);
    for (std::int64_t j = 0; j < size; ++j) {
      const bool seen = counted(mask, {}, queries, {j, j + 1}) > 0;
      const bool inside = j >= visible.begin && j < visible.end;
      // Several queries may leave holes between what they see, one does not.
      ASSERT_TRUE(!seen || inside);
      ASSERT_TRUE(queries.size() != 1 || seen == inside);
    }
  }
}

TEST(SequenceDocuments, RunsCoverTheSequenceAndADocumentMayComeAgain) {
  const std::vector<std::int64_t> ids{7, 7, -2, -2, -2, 7, 9};
  const SequenceDocuments documents(ids);
  EXPECT_EQ(documents.size(), 7);
  EXPECT_EQ(documents.count(), 3);
  EXPECT_EQ(documents.elements(0), (IndexRanges{{0, 2}, {5, 6}}));
  EXPECT_EQ(documents.elements(1), (IndexRanges{{2, 5}}));
  ASSERT_EQ(documents.runs().size(), 4u);
  EXPECT_EQ(documents.runs()[2].range, (ShardRange{5, 6}));
  EXPECT_EQ(documents.runs()[2].document, 0);
}

TEST(RowMask, AreasOfListsWithDocumentsAreThoseOfEveryPair) {
  Generator generator(2);
  for (int i = 0; i < 500; ++i) {
    const std::int64_t size = draw(generator, 1, 30);
    const std::vector<std::int64_t> ids = random_ids(generator, size, 7);
    const RowMask row{random_mask(generator), std::make_shared<SequenceDocuments>(ids)};
    const ShardRange queries = random_range(generator, size), keys = random_range(generator, size);
    ASSERT_EQ(visible_area(row, {queries}, {keys}), counted(row.mask, ids, queries, keys));
  }
}

}  // namespace
}  // namespace meshloom::planner::test
