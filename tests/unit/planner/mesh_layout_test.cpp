// SPDX-License-Identifier: Apache-2.0
#include "planner/mesh_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>

#include "kernels/base/error.h"
#include "planner/rank_count.h"

namespace meshloom::planner {
namespace {

TEST(MeshLayout, RanksAreRowMajor) {
  const MeshLayout mesh({{"dp", 2}, {"cp", 3}, {"tp", 4}});
  EXPECT_EQ(mesh.size(), 24);
  EXPECT_EQ(mesh.coordinates(0), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(mesh.coordinates(1), (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(mesh.coordinates(23), (std::vector<int>{1, 2, 3}));
  for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(mesh.rank_of(mesh.coordinates(rank)), rank);
}

TEST(MeshLayout, GroupsAlongEachDim) {
  const MeshLayout mesh({{"dp", 2}, {"cp", 3}, {"tp", 4}});
  EXPECT_EQ(mesh.group_of(2, 6), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(mesh.group_of(1, 6), (std::vector<int>{2, 6, 10}));
  EXPECT_EQ(mesh.group_of(0, 6), (std::vector<int>{6, 18}));
  for (int dim = 0; dim < 3; ++dim) {
    std::set<int> seen;
    for (const auto& group : mesh.groups(dim)) {
      EXPECT_EQ(static_cast<int>(group.size()), mesh.dim_size(dim));
      for (std::size_t i = 0; i < group.size(); ++i) {
        EXPECT_TRUE(seen.insert(group[i]).second);
        EXPECT_EQ(mesh.coordinates(group[i])[static_cast<std::size_t>(dim)], static_cast<int>(i));
        EXPECT_EQ(mesh.group_of(dim, group[i]), group);
      }
    }
    EXPECT_EQ(seen.size(), 24u);
  }
}

TEST(MeshLayout, NamesAndSizes) {
  const MeshLayout mesh({{"dp", 2}, {"tp", 4}});
  EXPECT_EQ(mesh.find_dim("tp"), 1);
  EXPECT_EQ(mesh.find_dim("cp"), std::nullopt);
  EXPECT_EQ(mesh.size_of("tp"), 4);
  EXPECT_EQ(mesh.size_of("cp"), 1);
  EXPECT_EQ(to_string(mesh), "dp=2,tp=4");
  EXPECT_EQ(to_string(MeshLayout()), "1");
}

TEST(MeshLayout, RefusesWhatIsNoMesh) {
  EXPECT_THROW(MeshLayout({{"dp", 0}}), InvalidArgument);
  EXPECT_THROW(MeshLayout({{"dp", 2}, {"dp", 2}}), InvalidArgument);
  try {
    MeshLayout({{"a", 1 << 20}, {"b", 1 << 20}});
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "mesh a=1048576,b=1048576: more than 2^31 - 1 ranks");
  }
  const int largest = std::numeric_limits<int>::max();
  EXPECT_EQ(rank_count(std::array{largest, 1}), largest);
  EXPECT_EQ(rank_count(std::array{largest, largest, largest, largest}), std::nullopt);
  EXPECT_EQ(rank_count(std::array{7623851, 2459346, 3935371}), std::nullopt);  // 2 in 64 bits
  const MeshLayout mesh({{"dp", 2}});
  EXPECT_THROW(mesh.coordinates(2), InvalidArgument);
  EXPECT_THROW(mesh.rank_of({2}), InvalidArgument);
  EXPECT_THROW(mesh.group_of(1, 0), InvalidArgument);
  EXPECT_NO_THROW(MeshLayout({{"", 2}, {"", 2}}));
}

TEST(MeshLayout, HundredThousandRanks) {
  const MeshLayout mesh({{"dp", 100}, {"fsdp", 125}, {"tp", 8}});
  const auto group = mesh.group_of(0, 99'999);
  EXPECT_EQ(group.size(), 100u);
  EXPECT_EQ(group.back(), 99'999);
  EXPECT_EQ(mesh.groups(1).size(), 800u);
}

TEST(MeshLayout, SubMeshesKeepTheirRanks) {
  const MeshLayout mesh({{"dp", 2}, {"cp", 3}, {"tp", 4}});
  const MeshLayout part = mesh.sub_mesh({0, 2}, 6);  // coordinates 0, 1, 2
  EXPECT_EQ(to_string(part), "dp=2,tp=4");
  EXPECT_FALSE(part.row_major());
  std::vector<int> ranks;
  for (int rank = 0; rank < part.size(); ++rank) ranks.push_back(part.world_rank(rank));
  EXPECT_EQ(ranks, (std::vector<int>{4, 5, 6, 7, 16, 17, 18, 19}));
  EXPECT_EQ(part.find_world_rank(16), 4);
  EXPECT_FALSE(part.find_world_rank(8).has_value());
  // A sub-mesh of a sub-mesh, dims in another order.
  const MeshLayout turned = part.sub_mesh({1, 0}, 5);
  EXPECT_EQ(turned.world_rank(turned.rank_of({2, 1})), 18);
  EXPECT_EQ(mesh.sub_mesh({0, 1, 2}, 3), mesh);
  EXPECT_TRUE(mesh.sub_mesh({0, 1, 2}, 3).row_major());
}

TEST(MeshLayout, FlattensDims) {
  const MeshLayout mesh({{"dp", 2}, {"cp", 3}, {"tp", 4}});
  const MeshLayout flat = mesh.flatten({0, 1});
  EXPECT_EQ(to_string(flat), "dp_cp=6,tp=4");
  EXPECT_TRUE(flat.row_major());
  const MeshLayout apart = mesh.flatten({0, 2}, "data");
  EXPECT_EQ(to_string(apart), "data=8,cp=3");
  for (int rank = 0; rank < 24; ++rank) {
    const std::vector<int> at = apart.coordinates(rank);
    const std::vector<int> there = mesh.coordinates(apart.world_rank(rank));
    EXPECT_EQ(at, (std::vector<int>{there[0] * 4 + there[2], there[1]}));
  }
  EXPECT_EQ(to_string(mesh.flatten({2, 0})), "cp=3,tp_dp=8");
}

TEST(MeshLayout, GroupsOverSeveralDims) {
  const MeshLayout mesh({{"dp", 2}, {"cp", 3}, {"tp", 2}});
  const std::vector<int> dims{0, 2}, turned{2, 0}, none;
  EXPECT_EQ(mesh.group_of(dims, 3), (std::vector<int>{2, 3, 8, 9}));
  EXPECT_EQ(mesh.group_of(turned, 3), (std::vector<int>{2, 8, 3, 9}));
  EXPECT_EQ(mesh.group_of(none, 3), std::vector<int>{3});
}

TEST(MeshLayout, FindsDimsByFlattenedNames) {
  const MeshLayout mesh = MeshLayout({{"dp", 2}, {"fsdp", 2}, {"cp", 3}, {"tp", 4}})
                              .with_flattened_name({0, 2})
                              .with_flattened_name({1, 2}, "shard");
  EXPECT_EQ(mesh.find_dims("dp_cp"), (std::vector<int>{0, 2}));
  EXPECT_EQ(mesh.find_dims("shard"), (std::vector<int>{1, 2}));
  EXPECT_EQ(mesh.find_dims("tp"), std::vector<int>{3});
  EXPECT_EQ(mesh.find_dims("tp,dp"), (std::vector<int>{3, 0}));
  EXPECT_EQ(mesh.find_dims("tp,shard"), (std::vector<int>{3, 1, 2}));
  EXPECT_THROW(mesh.find_dims("pp"), InvalidArgument);
  EXPECT_THROW(mesh.find_dims(""), InvalidArgument);
  EXPECT_THROW(mesh.find_dims("cp,shard"), InvalidArgument);
  EXPECT_THROW(mesh.with_flattened_name({0, 1}, "tp"), InvalidArgument);
  EXPECT_THROW(mesh.with_flattened_name({0, 9}), InvalidArgument);
}

TEST(MeshLayout, RefusesRanksThatDoNotFit) {
  const std::vector<MeshDim> dims{{"dp", 2}};
  EXPECT_THROW(MeshLayout(dims, {0}), InvalidArgument);
  EXPECT_THROW(MeshLayout(dims, {0, 0}), InvalidArgument);
  EXPECT_THROW(MeshLayout(dims, {0, -1}), InvalidArgument);
  EXPECT_TRUE(MeshLayout(dims, {0, 1}).row_major());
  EXPECT_FALSE(MeshLayout(dims, {1, 0}) == MeshLayout(dims));
  EXPECT_TRUE(MeshLayout(dims, {1, 0}) == MeshLayout(dims, {1, 0}));
  EXPECT_THROW(MeshLayout(dims).flatten({}), InvalidArgument);
  EXPECT_THROW(MeshLayout(dims).sub_mesh({0, 0}, 0), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::planner
