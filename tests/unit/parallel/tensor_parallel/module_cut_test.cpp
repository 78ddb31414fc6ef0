// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/module_cut.h"

#include <gtest/gtest.h>

namespace meshloom::parallel {
namespace {

using planner::IndexRanges;
using planner::MeshLayout;

planner::MeshPtr mesh_of(int size) {
  return std::make_shared<const MeshLayout>(MeshLayout({{"tp", size}}));
}

std::vector<IndexRanges> parts_of(const CutFeatures& features, int parts) {
  std::vector<IndexRanges> result;
  for (int p = 0; p < parts; ++p) result.push_back(features.orders.at(0)->part(p));
  return result;
}

TEST(CutFeatures, PlainFeaturesFollowTheCeilRule) {
  EXPECT_TRUE(cut_features(10, {}, mesh_of(3)).orders.empty());
  // Whole heads that the ceil rule would cut in the same places.
  EXPECT_TRUE(cut_features(64, {.unit = 16}, mesh_of(2)).orders.empty());
}

TEST(CutFeatures, HeadsAreNeverCut) {
  const CutFeatures features = cut_features(20, {.unit = 4}, mesh_of(3));
  EXPECT_EQ(parts_of(features, 3), (std::vector<IndexRanges>{{{0, 8}}, {{8, 16}}, {{16, 20}}}));
}

TEST(CutFeatures, FusedProjectionsAreCutStretchByStretch) {
  const CutFeatures features = cut_features(24, {.groups = 3, .unit = 2}, mesh_of(2));
  EXPECT_EQ(parts_of(features, 2),
            (std::vector<IndexRanges>{{{0, 4}, {8, 12}, {16, 20}}, {{4, 8}, {12, 16}, {20, 24}}}));
}

TEST(CutFeatures, QueriesOfAGroupStayTogetherWhereTheyCan) {
  const nn::FeatureUnits queries{.unit = 2, .bundle = 3};  // 9 heads, 3 of one key each
  EXPECT_EQ(parts_of(cut_features(18, queries, mesh_of(2)), 2),
            (std::vector<IndexRanges>{{{0, 12}}, {{12, 18}}}));
  // Fewer groups than ranks: single heads.
  EXPECT_EQ(parts_of(cut_features(18, queries, mesh_of(4)), 4),
            (std::vector<IndexRanges>{{{0, 6}}, {{6, 12}}, {{12, 18}}, {}}));
}

TEST(CutFeatures, FewKeyHeadsStayWhole) {
  const nn::FeatureUnits keys{.unit = 2, .whole_where_few = true};
  EXPECT_FALSE(cut_features(6, keys, mesh_of(3)).whole);
  EXPECT_TRUE(cut_features(6, keys, mesh_of(4)).whole);
}

}  // namespace
}  // namespace meshloom::parallel
