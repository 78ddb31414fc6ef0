// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/page_room.h"

#include <gtest/gtest.h>

#include "daemon/control/net/status.h"
#include "daemon/control/stores/numbered_items.h"
#include "v1/stored.pb.h"

namespace meshloom::control {
namespace {

v1::StoredPlan plan_of(const std::string& id, std::size_t bytes) {
  v1::StoredPlan plan;
  plan.set_id(id);
  plan.mutable_model()->set_hf_folder(std::string(bytes, 'f'));
  return plan;
}

TEST(PageRoom, APageEndsWithItsItemsOrItsBytes) {
  const v1::StoredPlan small = plan_of("a", 10), large = plan_of("b", PageRoom::kBytes / 2);
  PageRoom few(2);
  EXPECT_TRUE(few.take(small));
  EXPECT_TRUE(few.take(small));
  EXPECT_FALSE(few.take(small));
  PageRoom bytes(100);
  EXPECT_TRUE(bytes.take(large));
  EXPECT_FALSE(bytes.take(large)) << "two halves and their names are more than the whole";
  EXPECT_TRUE(bytes.take(small));
  PageRoom one(100);
  EXPECT_TRUE(one.take(plan_of("c", 2 * PageRoom::kBytes))) << "else no page would ever hold it";
  EXPECT_FALSE(one.take(small));
  static_assert(2 * PageRoom::kBytes <= kRequestBytes, "what clients take by themselves");
}

TEST(PageRoom, PagesByBytesHoldEveryItemOnce) {
  NumberedItems<v1::StoredPlan> items;
  for (int i = 0; i < 40; ++i)
    items.put(plan_of(std::to_string(i), static_cast<std::size_t>(i % 7) * (200 << 10)));
  std::vector<std::string> seen;
  int pages = 0;
  for (std::int64_t position = 0; pages == 0 || position > 0; ++pages) {
    const auto [page, next] =
        items.page(position, 1000, [](const v1::StoredPlan& plan) { return std::optional(plan); });
    std::size_t bytes = 0;
    for (const v1::StoredPlan& plan : page) {
      bytes += plan.ByteSizeLong();
      seen.push_back(plan.id());
    }
    EXPECT_LE(bytes, PageRoom::kBytes);
    position = next;
  }
  EXPECT_GT(pages, 10);
  ASSERT_EQ(seen.size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], std::to_string(i));
}

}  // namespace
}  // namespace meshloom::control
