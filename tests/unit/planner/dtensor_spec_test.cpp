// SPDX-License-Identifier: Apache-2.0
#include "planner/dtensor_spec.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

MeshPtr mesh_of(const std::vector<int>& sizes) {
  std::vector<MeshDim> dims;
  for (const int size : sizes) dims.push_back({"", size});
  return std::make_shared<const MeshLayout>(dims);
}

Placements parse(const std::vector<const char*>& texts) {
  Placements placements;
  for (const char* text : texts) placements.push_back(parse_placement(text));
  return placements;
}

/// Size and offset of dim 0 on every rank.
std::vector<std::pair<std::int64_t, std::int64_t>> parts_of(const DTensorSpec& spec) {
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (int rank = 0; rank < spec.mesh().size(); ++rank) {
    const LocalPart part = spec.local_part(spec.mesh().coordinates(rank));
    EXPECT_EQ(part.shape(), spec.local_shape(spec.mesh().coordinates(rank)));
    result.emplace_back(part.shape()[0], part.offset(spec.shape())[0]);
  }
  return result;
}

using Parts = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST(DTensorSpec, ShardsOneDimOverTwoMeshDims) {
  const DTensorSpec nested(mesh_of({4, 2}), parse({"S(0)", "S(0)"}), {18, 2});
  EXPECT_EQ(parts_of(nested),
            (Parts{{3, 0}, {2, 3}, {3, 5}, {2, 8}, {3, 10}, {2, 13}, {2, 15}, {1, 17}}));
  const DTensorSpec small(mesh_of({4, 2}), parse({"S(0)", "S(0)"}), {13, 2});
  EXPECT_EQ(parts_of(small),
            (Parts{{2, 0}, {2, 2}, {2, 4}, {2, 6}, {2, 8}, {2, 10}, {1, 12}, {0, 13}}));
}

TEST(DTensorSpec, FollowsTheShardOrder) {
  const DTensorSpec spec(mesh_of({4, 2}), parse({"S(0)", "S(0)"}), {15, 5}, {{0, {1, 0}}});
  EXPECT_FALSE(spec.default_order());
  EXPECT_EQ(parts_of(spec),
            (Parts{{2, 0}, {2, 8}, {2, 2}, {2, 10}, {2, 4}, {2, 12}, {2, 6}, {1, 14}}));
  const DTensorSpec uneven(mesh_of({4, 2}), parse({"S(0)", "S(0)"}), {18, 2}, {{0, {1, 0}}});
  EXPECT_EQ(parts_of(uneven),
            (Parts{{3, 0}, {3, 9}, {3, 3}, {3, 12}, {3, 6}, {3, 15}, {0, 18}, {0, 18}}));
}

TEST(DTensorSpec, ShardsManyRanks) {
  const DTensorSpec spec(mesh_of({30, 8}), parse({"S(0)", "S(0)"}), {4096, 3}, {{0, {1, 0}}});
  for (int dp = 0; dp < 30; ++dp)
    for (int tp = 0; tp < 8; ++tp) {
      const LocalPart part = spec.local_part({dp, tp});
      const std::int64_t size = dp < 28 ? 18 : dp == 28 ? 8 : 0;
      EXPECT_EQ(part.shape(), (Shape{size, 3}));
      EXPECT_EQ(part.offset(spec.shape())[0], dp < 29 ? tp * 512 + 18 * dp : 4096);
    }
}

TEST(DTensorSpec, CompletesTheShardOrder) {
  const DTensorSpec spec(mesh_of({2, 2, 2}), parse({"S(1)", "R", "S(-1)"}), {4, 6});
  EXPECT_EQ(spec.shard_order(), (ShardOrder{{1, {0, 2}}}));
  EXPECT_EQ(spec.placement(2), Placement::shard(1));
  EXPECT_TRUE(spec.sharding_dims(0).empty());
  EXPECT_EQ(spec.sharding_dims(1), (std::vector<int>{0, 2}));
  EXPECT_TRUE(spec.default_order());
  EXPECT_FALSE(spec.replicated());
  EXPECT_FALSE(spec.has_partial());
}

TEST(DTensorSpec, ShardsWhatADimOrderLeft) {
  // A fused projection of 3 x 4 elements sharded by units over mesh dim 1, then plainly over mesh
  // dim 0.
  const auto heads = DimOrder::blocked(12, 2, 3, 2);
  const DTensorSpec spec(mesh_of({2, 2}), parse({"S(0)", "S(0)"}), {12}, {{0, {1, 0}}},
                         {nullptr, heads});
  EXPECT_EQ(spec.local_part({0, 0}).ranges(0), (IndexRanges{{0, 2}, {4, 5}}));
  EXPECT_EQ(spec.local_part({1, 0}).ranges(0), (IndexRanges{{5, 6}, {8, 10}}));
  EXPECT_EQ(spec.local_part({0, 1}).ranges(0), (IndexRanges{{2, 4}, {6, 7}}));
  EXPECT_FALSE(spec.local_part({0, 0}).contiguous());
  EXPECT_THROW(spec.local_part({0, 0}).offset(spec.shape()), InvalidArgument);
  EXPECT_EQ(spec.local_shape({1, 1}), (Shape{3}));
}

TEST(DTensorSpec, EveryShardOrderTilesTheTensor) {
  const std::vector<std::vector<int>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (std::int64_t n = 0; n < 40; ++n)
    for (const std::vector<int>& order : orders) {
      const DTensorSpec spec(mesh_of({2, 3, 2}), parse({"S(0)", "S(0)", "S(0)"}), {n},
                             {{0, order}});
      std::multiset<std::int64_t> held;
      for (int rank = 0; rank < 12; ++rank) {
        const LocalPart part = spec.local_part(spec.mesh().coordinates(rank));
        EXPECT_TRUE(part.contiguous());
        for (const ShardRange& range : part.ranges(0))
          for (std::int64_t i = range.begin; i < range.end; ++i) held.insert(i);
      }
      std::multiset<std::int64_t> all;
      for (std::int64_t i = 0; i < n; ++i) all.insert(i);
      EXPECT_EQ(held, all);
    }
}

TEST(DTensorSpec, EqualityAndHash) {
  const MeshPtr mesh = mesh_of({2, 2});
  const DTensorSpec a(mesh, parse({"S(0)", "S(0)"}), {8, 8});
  EXPECT_EQ(a, DTensorSpec(mesh_of({2, 2}), parse({"S(0)", "S(-2)"}), {8, 8}, {{0, {0, 1}}}));
  EXPECT_EQ(a.hash(), DTensorSpec(mesh_of({2, 2}), parse({"S(0)", "S(0)"}), {8, 8}).hash());
  EXPECT_FALSE(a == DTensorSpec(mesh, parse({"S(0)", "S(0)"}), {8, 8}, {{0, {1, 0}}}));
  EXPECT_FALSE(a == DTensorSpec(mesh, parse({"S(0)", "S(0)"}), {8, 9}));
  EXPECT_FALSE(a == DTensorSpec(mesh_of({4, 2}), parse({"S(0)", "S(0)"}), {8, 8}));
  EXPECT_FALSE(DTensorSpec(mesh, parse({"P", "R"}), {8}) ==
               DTensorSpec(mesh, parse({"P(avg)", "R"}), {8}));
  const auto order = DimOrder::blocked(12, 2, 3, 1);
  const auto same = DimOrder::listed(12, {order->part(0), order->part(1)});
  const DTensorSpec ordered(mesh, parse({"S(0)", "R"}), {12}, {}, {order, nullptr});
  EXPECT_EQ(ordered, DTensorSpec(mesh, parse({"S(0)", "R"}), {12}, {}, {same, nullptr}));
  EXPECT_FALSE(ordered == DTensorSpec(mesh, parse({"S(0)", "R"}), {12}));
  // An order that is the ceil rule is none.
  EXPECT_EQ(
      DTensorSpec(mesh, parse({"S(0)", "R"}), {12}),
      DTensorSpec(mesh, parse({"S(0)", "R"}), {12}, {}, {DimOrder::blocked(12, 2, 1, 3), nullptr}));
}

TEST(DTensorSpec, PrintsItself) {
  const MeshPtr mesh = mesh_of({2, 2});
  EXPECT_EQ(to_string(DTensorSpec(mesh, parse({"S(0)", "P(avg)"}), {8})), "[S(0), P(avg)]");
  EXPECT_EQ(to_string(DTensorSpec(mesh, parse({"S(0)", "S(0)"}), {8}, {{0, {1, 0}}})),
            "[S(0), S(0)] order 0:[1, 0]");
  EXPECT_EQ(to_string(DTensorSpec(mesh, parse({"S(0)", "R"}), {12}, {},
                                  {DimOrder::blocked(12, 2, 3, 2), nullptr})),
            "[S(0), R] 0:blocked(3x2)");
}

TEST(DTensorSpec, MixesNoKindsOfPartialThatDoNotCommute) {
  const MeshPtr mesh = mesh_of({2, 2});
  EXPECT_NO_THROW(DTensorSpec(mesh, parse({"P(sum)", "P(avg)"}), {8}));
  EXPECT_NO_THROW(DTensorSpec(mesh, parse({"P(max)", "P(max)"}), {8}));
  EXPECT_NO_THROW(DTensorSpec(mesh, parse({"P(min)", "S(0)"}), {8}));
  for (const auto& mixed :
       {parse({"P(sum)", "P(max)"}), parse({"P(min)", "P(avg)"}), parse({"P(max)", "P(min)"})})
    EXPECT_THROW(DTensorSpec(mesh, mixed, {8}), InvalidArgument) << to_string(mixed);
}

TEST(DTensorSpec, ShardsEveryRowInItsOrder) {
  const MeshPtr mesh = mesh_of({2, 2, 2});
  const auto rows = DimOrder::listed_by_row(
      4, 0, {{{{0, 1}, {3, 4}}, {{1, 3}}}, {{{0, 2}}, {{2, 4}}}, {{{2, 4}}, {{1, 2}, {0, 1}}}});
  // Dim 1 by rows of dim 0, each list then sharded plainly; the rows themselves shard by mesh
  // dim 2.
  const DTensorSpec spec(mesh, parse({"S(1)", "S(1)", "S(0)"}), {3, 4}, {},
                         {rows, nullptr, nullptr});
  EXPECT_EQ(spec.local_shape({1, 1, 0}), (Shape{2, 1}));
  const LocalPart part = spec.local_part({0, 1, 0});
  EXPECT_EQ(part.ranges_of_row(1, 0), (IndexRanges{{3, 4}}));
  EXPECT_EQ(part.ranges_of_row(1, 1), (IndexRanges{{1, 2}}));
  EXPECT_EQ(spec.local_part({1, 1, 1}).ranges(1), (IndexRanges{{0, 1}}));
  EXPECT_FALSE(spec == DTensorSpec(mesh, parse({"S(1)", "S(1)", "S(0)"}), {3, 4}));
  EXPECT_NE(to_string(spec).find("0:listed("), std::string::npos);

  const auto spec_of = [&](const DimOrderPtr& order, const Shape& shape, const char* first,
                           const DimOrderPtr& second = nullptr, const char* other = "R") {
    return DTensorSpec(mesh, parse({first, other, "R"}), shape, {}, {order, second, nullptr});
  };
  EXPECT_NO_THROW(spec_of(DimOrder::with_row_dim(rows, 1), {4, 3}, "S(0)"));
  EXPECT_NO_THROW(spec_of(rows, {3, 4, 4}, "S(1)", rows, "S(2)"));
  EXPECT_THROW(spec_of(rows, {2, 4}, "S(1)"), InvalidArgument);
  EXPECT_THROW(spec_of(rows, {4, 4}, "S(0)"), InvalidArgument);
  EXPECT_THROW(spec_of(DimOrder::with_row_dim(rows, 2), {3, 4}, "S(1)"), InvalidArgument);
  // The rows' own dim may be in any order but one by rows.
  const auto of_rows = DimOrder::listed(3, {{{0, 1}, {2, 3}}, {{1, 2}}});
  EXPECT_NO_THROW(spec_of(rows, {3, 4}, "S(1)", of_rows, "S(0)"));
  const auto cycle = DimOrder::listed_by_row(
      3, 1,
      {{{{0, 2}}, {{2, 3}}}, {{{1, 3}}, {{0, 1}}}, {{{0, 2}}, {{2, 3}}}, {{{0, 2}}, {{2, 3}}}});
  EXPECT_NO_THROW(spec_of(cycle, {3, 4}, "S(0)"));
  EXPECT_THROW(spec_of(rows, {3, 4}, "S(1)", cycle, "S(0)"), InvalidArgument);
}

TEST(DTensorSpec, RefusesWhatDoesNotFit) {
  const MeshPtr mesh = mesh_of({2, 2});
  EXPECT_THROW(DTensorSpec(nullptr, {}, {8}), InvalidArgument);
  EXPECT_THROW(DTensorSpec(mesh, parse({"R"}), {8}), InvalidArgument);
  EXPECT_THROW(DTensorSpec(mesh, parse({"S(1)", "R"}), {8}), InvalidArgument);
  EXPECT_THROW(DTensorSpec(mesh, parse({"S(0)", "R"}), {8}, {{0, {1}}}), InvalidArgument);
  EXPECT_THROW(DTensorSpec(mesh, parse({"S(0)", "R"}), {8}, {{1, {0}}}), InvalidArgument);
  EXPECT_THROW(DTensorSpec(mesh, parse({"S(0)", "R"}), {8}, {{0, {0}}, {0, {0}}}), InvalidArgument);
  const auto order = DimOrder::blocked(12, 2, 3, 2);
  EXPECT_THROW(DTensorSpec(mesh, parse({"R", "R"}), {12}, {}, {order, nullptr}), InvalidArgument);
  EXPECT_THROW(DTensorSpec(mesh, parse({"S(0)", "R"}), {13}, {}, {order, nullptr}),
               InvalidArgument);
  EXPECT_THROW(DTensorSpec(mesh, parse({"S(0)", "R"}), {12}, {}, {order}), InvalidArgument);
  EXPECT_THROW(DTensorSpec(mesh, parse({"S(0)", "S(0)"}), {12}, {}, {nullptr, order}),
               InvalidArgument);
  EXPECT_THROW(DTensorSpec(mesh_of({3}), parse({"S(0)"}), {12}, {}, {order}), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::planner
