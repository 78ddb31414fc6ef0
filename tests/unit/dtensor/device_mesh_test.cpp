// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/device_mesh.h"

#include <gtest/gtest.h>

#include "daemon/tensor/tensor.h"
#include "kernels/base/error.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::dtensor {
namespace {

using planner::MeshLayout;

/// The ranks of a group in its order, found by telling each other.
std::vector<std::int64_t> members_of(ExecutionContext& context, comm::ProcessGroup& group,
                                     int world_rank) {
  std::vector<Tensor> ranks;
  std::vector<TensorView> views;
  for (int r = 0; r < group.size(); ++r) {
    ranks.push_back(empty(context, {1}, DType::kInt64));
    views.push_back(ranks.back().view());
  }
  const std::int64_t own[] = {world_rank};
  group.all_gather(views, from_values(context, {1}, std::span<const std::int64_t>(own)).view())
      ->wait_host();
  std::vector<std::int64_t> found;
  for (const Tensor& rank : ranks) found.push_back(static_cast<std::int64_t>(rank.item()));
  return found;
}

void on_ranks(int count, const std::function<void(comm::ProcessGroup&, ExecutionContext&)>& body) {
  testing::run_thread_ranks(count, [&](comm::RankRuntime& runtime) {
    const auto world =
        testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
    testing::TestContext context;
    body(*world, context);
  });
}

TEST(DeviceMesh, GroupsAlongDims) {
  on_ranks(6, [](comm::ProcessGroup& world, ExecutionContext& context) {
    DeviceMesh mesh(world, MeshLayout({{"dp", 2}, {"tp", 3}}));
    const int rank = world.rank(), dp = rank / 3, tp = rank % 3;
    EXPECT_EQ(mesh.coordinates(), (std::vector<int>{dp, tp}));
    using Ranks = std::vector<std::int64_t>;
    EXPECT_EQ(members_of(context, mesh.group(0), rank), (Ranks{tp, tp + 3}));
    EXPECT_EQ(members_of(context, mesh.group(1), rank), (Ranks{3 * dp, 3 * dp + 1, 3 * dp + 2}));
    EXPECT_EQ(members_of(context, mesh.group({0, 1}), rank), (Ranks{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(members_of(context, mesh.group({1, 0}), rank), (Ranks{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(mesh.counters().at("all_gather").calls, 4u);
    EXPECT_EQ(mesh.counters().count("barrier"), 0u);
    EXPECT_NE(mesh.flight_record().find("all_gather"), std::string::npos);
    mesh.reset_counters();
    EXPECT_TRUE(mesh.counters().empty() || mesh.counters().at("all_gather").calls == 0);
    EXPECT_THROW(mesh.group(2), InvalidArgument);
  });
}

TEST(DeviceMesh, SubMeshesAndFlattenedDims) {
  on_ranks(8, [](comm::ProcessGroup& world, ExecutionContext& context) {
    DeviceMesh mesh(world, MeshLayout({{"dp", 2}, {"cp", 2}, {"tp", 2}}));
    const int rank = world.rank();
    const auto sub = mesh.sub_mesh({"dp", "tp"});
    EXPECT_EQ(to_string(*sub->layout()), "dp=2,tp=2");
    EXPECT_EQ(sub->coordinates(), (std::vector<int>{rank / 4, rank % 2}));
    const int cp = rank / 2 % 2;
    EXPECT_EQ(members_of(context, sub->group({0, 1}), rank),
              (std::vector<std::int64_t>{2 * cp, 2 * cp + 1, 2 * cp + 4, 2 * cp + 5}));
    const auto flat = mesh.flattened({"dp", "cp"}, "dp_cp");
    EXPECT_EQ(to_string(*flat->layout()), "dp_cp=4");
    EXPECT_EQ(flat->rank(), rank / 2);
    EXPECT_THROW(mesh.sub_mesh({"pp"}), NotFound);
    EXPECT_THROW(mesh.sub_mesh({"dp", "dp"}), InvalidArgument);
  });
}

TEST(DeviceMesh, NamesOfFlattenedDims) {
  on_ranks(8, [](comm::ProcessGroup& world, ExecutionContext& context) {
    const MeshLayout layout =
        MeshLayout({{"pp", 1}, {"dp", 2}, {"cp", 2}, {"tp", 2}}).with_flattened_name({1, 2});
    DeviceMesh mesh(world, layout);
    const int rank = world.rank();
    const auto flat = mesh.sub_mesh({"dp_cp"});
    EXPECT_EQ(to_string(*flat->layout()), "dp_cp=4");
    EXPECT_EQ(members_of(context, flat->group(0), rank),
              (std::vector<std::int64_t>{rank % 2, 2 + rank % 2, 4 + rank % 2, 6 + rank % 2}));
    const auto two = mesh.sub_mesh({"tp", "dp_cp"});
    EXPECT_EQ(to_string(*two->layout()), "tp=2,dp_cp=4");
    EXPECT_EQ(two->coordinates(), (std::vector<int>{rank % 2, rank / 2}));
    // A sub-mesh and other flattened dims leave the name where its dims are.
    EXPECT_EQ(mesh.sub_mesh({"dp", "cp"})->sub_mesh({"dp_cp"})->rank(), rank / 2);
    EXPECT_EQ(layout.flatten({0, 3}, "rest").find_dims("dp_cp"), (std::vector<int>{1, 2}));
    EXPECT_THROW(layout.flatten({1, 3}).find_dims("dp_cp"), InvalidArgument);
    EXPECT_THROW(mesh.sub_mesh({"dp_cp", "cp"}), InvalidArgument);
    EXPECT_THROW(mesh.sub_mesh({"dp", "tp"})->sub_mesh({"dp_cp"}), NotFound);
    // Also of a mesh on some ranks of its group, in an order of its own.
    DeviceMesh turned(world, layout, {7, 6, 5, 4, 3, 2, 1, 0});
    EXPECT_EQ(turned.sub_mesh({"dp_cp"})->rank(), (7 - rank) / 2);
    mesh.flattened({"cp", "tp"}, "inner");
    EXPECT_EQ(mesh.sub_mesh({"inner"})->rank(), rank % 4);
  });
}

TEST(DeviceMesh, RanksOutside) {
  on_ranks(4, [](comm::ProcessGroup& world, ExecutionContext& context) {
    DeviceMesh mesh(world, MeshLayout({{"tp", 3}}), {0, 3, 1});
    EXPECT_EQ(mesh.member(), world.rank() != 2);
    if (!mesh.member()) {
      EXPECT_EQ(mesh.rank(), -1);
      EXPECT_TRUE(mesh.coordinates().empty());
      EXPECT_THROW(mesh.group(0), FailedPrecondition);
      return;
    }
    EXPECT_EQ(members_of(context, mesh.group(0), world.rank()),
              (std::vector<std::int64_t>{0, 3, 1}));
  });
}

TEST(DeviceMesh, RefusesWhatDoesNotFit) {
  on_ranks(2, [](comm::ProcessGroup& world, ExecutionContext&) {
    EXPECT_THROW(DeviceMesh(world, MeshLayout({{"tp", 3}})), InvalidArgument);
    EXPECT_THROW(DeviceMesh(world, MeshLayout({{"tp", 2}}), {0}), InvalidArgument);
    EXPECT_THROW(DeviceMesh(world, MeshLayout({{"tp", 2}}), {1, 1}), InvalidArgument);
    EXPECT_THROW(DeviceMesh(world, MeshLayout({{"tp", 2}}), {0, 2}), InvalidArgument);
    const DeviceMesh mesh(world, MeshLayout({{"tp", 2}}));
    EXPECT_EQ(mesh.rank(), world.rank());
  });
}

}  // namespace
}  // namespace meshloom::dtensor
