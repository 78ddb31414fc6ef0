// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/module_sharding.h"

#include <gtest/gtest.h>

namespace meshloom::planner {
namespace {

MeshPtr mesh_of(int size) { return std::make_shared<const MeshLayout>(MeshLayout({{"tp", size}})); }

std::vector<IndexRanges> parts_of(const ShardedFeatures& features, int parts) {
  std::vector<IndexRanges> result;
  for (int p = 0; p < parts; ++p) result.push_back(features.orders.at(0)->part(p));
  return result;
}

TEST(ShardedFeatures, PlainFeaturesFollowTheCeilRule) {
  EXPECT_TRUE(shard_features(10, {}, mesh_of(3)).orders.empty());
  // Whole heads that the ceil rule would shard in the same places.
  EXPECT_TRUE(shard_features(64, {.unit = 16}, mesh_of(2)).orders.empty());
}

TEST(ShardedFeatures, HeadsAreNeverSharded) {
  const ShardedFeatures features = shard_features(20, {.unit = 4}, mesh_of(3));
  EXPECT_EQ(parts_of(features, 3), (std::vector<IndexRanges>{{{0, 8}}, {{8, 16}}, {{16, 20}}}));
}

TEST(ShardedFeatures, FusedProjectionsAreShardedStretchByStretch) {
  const ShardedFeatures features = shard_features(24, {.groups = 3, .unit = 2}, mesh_of(2));
  EXPECT_EQ(parts_of(features, 2),
            (std::vector<IndexRanges>{{{0, 4}, {8, 12}, {16, 20}}, {{4, 8}, {12, 16}, {20, 24}}}));
}

TEST(ShardedFeatures, QueriesOfAGroupStayTogetherWhereTheyCan) {
  const FeatureUnits queries{.unit = 2, .bundle = 3};  // 9 heads, 3 of one key each
  EXPECT_EQ(parts_of(shard_features(18, queries, mesh_of(2)), 2),
            (std::vector<IndexRanges>{{{0, 12}}, {{12, 18}}}));
  // Fewer groups than ranks: single heads.
  EXPECT_EQ(parts_of(shard_features(18, queries, mesh_of(4)), 4),
            (std::vector<IndexRanges>{{{0, 6}}, {{6, 12}}, {{12, 18}}, {}}));
}

TEST(ShardedFeatures, FewKeyHeadsStayWhole) {
  const FeatureUnits keys{.unit = 2, .whole_where_few = true};
  EXPECT_FALSE(shard_features(6, keys, mesh_of(3)).whole);
  EXPECT_TRUE(shard_features(6, keys, mesh_of(4)).whole);
}

}  // namespace
}  // namespace meshloom::planner
