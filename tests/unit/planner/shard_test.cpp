// SPDX-License-Identifier: Apache-2.0
#include "planner/shard.h"

#include <gtest/gtest.h>

#include <limits>

namespace meshloom::planner {
namespace {

TEST(ShardRange, FollowsTheCeilRule) {
  for (std::int64_t n = 0; n < 40; ++n) {
    for (std::int64_t parts = 1; parts < 12; ++parts) {
      const std::int64_t chunk = (n + parts - 1) / parts;
      for (std::int64_t r = 0; r < parts; ++r) {
        const ShardRange range = shard_range(n, parts, r);
        EXPECT_EQ(range.begin, std::min(n, r * chunk)) << n << " over " << parts << ", part " << r;
        EXPECT_EQ(range.end, std::min(n, (r + 1) * chunk))
            << n << " over " << parts << ", part " << r;
      }
    }
  }
}

TEST(ShardRange, DoesNotOverflow) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(shard_range(most, 1, 0), (ShardRange{0, most}));
  EXPECT_EQ(shard_range(most, 3, 2).end, most);
  EXPECT_EQ(shard_range(most, most, most - 1), (ShardRange{most - 1, most}));
  EXPECT_EQ(shard_range(5, most, most - 1), (ShardRange{5, 5}));
}

}  // namespace
}  // namespace meshloom::planner
