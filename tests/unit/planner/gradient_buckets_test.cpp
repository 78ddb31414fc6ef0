// SPDX-License-Identifier: Apache-2.0
#include "planner/gradient_buckets.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

TEST(GradientBuckets, FillsFromTheLastParameter) {
  const std::int64_t sizes[] = {100, 5, 60, 50};
  const auto buckets = plan_gradient_buckets(sizes, 100, 1);
  ASSERT_EQ(buckets.size(), 2u);
  ASSERT_EQ(buckets[0].slots.size(), 2u);
  EXPECT_EQ(buckets[0].slots[0].parameter, 3);
  EXPECT_EQ(buckets[0].slots[1].parameter, 2);
  EXPECT_EQ(buckets[0].slots[1].offset, 50);
  EXPECT_EQ(buckets[0].size, 110);
  EXPECT_EQ(buckets[1].slots[0].parameter, 1);
  EXPECT_EQ(buckets[1].slots[1].parameter, 0);
}

TEST(GradientBuckets, EveryParameterOnceAlignedAndApart) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::int64_t> sizes(random() % 30);
    for (auto& size : sizes) size = random() % 1000;
    const std::int64_t limit = 1 + random() % 2000;
    std::set<int> seen;
    for (const GradientBucket& bucket : plan_gradient_buckets(sizes, limit, 16)) {
      std::int64_t end = 0;
      ASSERT_FALSE(bucket.slots.empty());
      for (const BucketSlot& slot : bucket.slots) {
        EXPECT_TRUE(seen.insert(slot.parameter).second);
        EXPECT_EQ(slot.size, sizes[static_cast<std::size_t>(slot.parameter)]);
        EXPECT_EQ(slot.offset % 16, 0);
        EXPECT_GE(slot.offset, end);
        end = slot.offset + slot.size;
      }
      EXPECT_EQ(bucket.size, end);
      // Only the parameter that fills a bucket may pass the limit.
      EXPECT_LT(bucket.slots.back().offset - 15, limit);
    }
    EXPECT_EQ(seen.size(), sizes.size());
  }
}

TEST(GradientBuckets, RefusesNonsense) {
  const std::int64_t sizes[] = {1}, negative[] = {-1};
  EXPECT_THROW(plan_gradient_buckets(sizes, 0), InvalidArgument);
  EXPECT_THROW(plan_gradient_buckets(negative, 8), InvalidArgument);
  EXPECT_TRUE(plan_gradient_buckets({}, 8).empty());
}

}  // namespace
}  // namespace meshloom::planner
