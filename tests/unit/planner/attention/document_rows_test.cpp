// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/document_rows.h"

#include <gtest/gtest.h>

namespace meshloom::planner::test {
namespace {

TEST(DocumentRows, AreThoseOfEachRow) {
  const std::vector<std::int64_t> ids{7, 7, 2, 7, 5, 5, 5, 5};
  const auto rows = document_rows(ids, 2);
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ(rows->at(0)->ids, (std::vector<std::int64_t>{7, 7, 2, 7}));
  EXPECT_EQ(rows->at(0)->documents->count(), 2);
  EXPECT_EQ(rows->at(1)->documents->count(), 1);
  EXPECT_EQ(rows->at(1)->documents->size(), 4);
  EXPECT_TRUE(document_rows({}, 0)->empty());
}

}  // namespace
}  // namespace meshloom::planner::test
