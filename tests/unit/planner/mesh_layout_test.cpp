// SPDX-License-Identifier: Apache-2.0
#include "planner/mesh_layout.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/base/error.h"

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
  EXPECT_THROW(MeshLayout({{"a", 1 << 20}, {"b", 1 << 20}}), InvalidArgument);
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

}  // namespace
}  // namespace meshloom::planner
