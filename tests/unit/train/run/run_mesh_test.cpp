// SPDX-License-Identifier: Apache-2.0
// Which ranks the groups of a run's mesh hold, against the ranks' coordinates.
#include "daemon/train/run/run_mesh.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "tests/support/thread_ranks.h"

namespace meshloom::train {
namespace {

/// Ranks of the world in a group, which all of them call.
std::vector<int> members(comm::ProcessGroup& group, int world_rank) {
  std::vector<double> ranks(static_cast<std::size_t>(group.size()), 0.0);
  ranks[static_cast<std::size_t>(group.rank())] = world_rank;
  const Shape shape = {static_cast<std::int64_t>(ranks.size())};
  group.all_reduce(make_view(ranks.data(), DType::kFloat64, shape), comm::ReduceOp::kSum)
      ->wait_host();
  return {ranks.begin(), ranks.end()};
}

/// Ranks that differ from `rank` along the dims of these names only, in order.
std::vector<int> expected(const planner::MeshLayout& mesh, int rank,
                          const std::set<std::string>& names) {
  std::vector<int> ranks;
  const std::vector<int> mine = mesh.coordinates(rank);
  for (int other = 0; other < mesh.size(); ++other) {
    const std::vector<int> theirs = mesh.coordinates(other);
    bool differs_there_only = true;
    for (std::size_t d = 0; d < mine.size(); ++d)
      if (mine[d] != theirs[d] && names.count(mesh.dims()[d].name) == 0) differs_there_only = false;
    if (differs_there_only) ranks.push_back(other);
  }
  return ranks;
}

TEST(RunMesh, GroupsHoldTheRanksThatTheySay) {
  for (const auto& [dp, fsdp, cp, tp] : std::vector<std::array<int, 4>>{
           {2, 1, 2, 2}, {1, 2, 3, 1}, {2, 2, 1, 2}, {1, 1, 4, 2}, {2, 2, 2, 1}, {1, 2, 2, 2}}) {
    const planner::MeshLayout layout({{"dp", dp}, {"fsdp", fsdp}, {"cp", cp}, {"tp", tp}});
    testing::run_ranks(layout.size(), [&](comm::ProcessGroup& world) {
      RunMesh mesh(world, layout);
      const auto check = [&](comm::ProcessGroup& group, const std::set<std::string>& names) {
        EXPECT_EQ(members(group, world.rank()), expected(layout, world.rank(), names));
      };
      check(mesh.data(), {"dp", "fsdp"});
      check(mesh.sequence(), {"cp"});
      check(mesh.tensor(), {"tp"});
      check(mesh.same_samples(), {"cp", "tp"});
      check(mesh.gradients(), {"dp", "fsdp", "cp"});
      const parallel::DataParallelGroups groups = mesh.data_parallel_groups();
      check(*groups.data, {"dp", "fsdp", "cp"});
      if (fsdp > 1) {
        // fully_shard shards over both; where cp has one rank that makes no difference.
        check(mesh.model(), {"fsdp", "cp", "tp"});
        check(*groups.gather, {"fsdp", "cp"});
        check(*groups.reduce, {"fsdp", "cp"});
        check(*groups.replicas, {"dp"});
        ASSERT_TRUE(mesh.shard_dim().has_value());
        EXPECT_EQ(mesh.state_layout()->dim_size(*mesh.shard_dim()), fsdp * cp);
        EXPECT_EQ(mesh.state_coordinates()[static_cast<std::size_t>(*mesh.shard_dim())],
                  groups.gather->rank());
      } else {
        check(mesh.model(), {"fsdp", "tp"});
        check(*groups.gather, {"fsdp"});
        check(*groups.replicas, {"dp", "cp"});
        EXPECT_EQ(mesh.state_layout(), mesh.layout());
      }
      const std::vector<int> at = layout.coordinates(world.rank());
      EXPECT_EQ(mesh.leads_samples(), at[2] == 0 && at[3] == 0);
    });
  }
}

}  // namespace
}  // namespace meshloom::train
