// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/describe_parameters.h"

#include <gtest/gtest.h>

namespace meshloom::train {
namespace {

using planner::DimOrder;
using planner::DTensorSpec;
using planner::Placement;

class DescribeParametersTest : public ::testing::Test {
 protected:
  static planner::MeshPtr mesh(int dp, int fsdp, int tp) {
    return std::make_shared<const planner::MeshLayout>(
        std::vector<planner::MeshDim>{{"dp", dp}, {"fsdp", fsdp}, {"cp", 1}, {"tp", tp}});
  }
  static planner::SpecPtr spec(const planner::MeshPtr& mesh, Placement fsdp, Placement tp,
                               Shape shape, planner::ShardOrder order = {},
                               planner::DimOrderPtr heads = nullptr) {
    const Placement whole = Placement::replicate();
    return std::make_shared<const DTensorSpec>(
        mesh, planner::Placements{whole, fsdp, whole, tp}, shape, std::move(order),
        heads ? std::vector<planner::DimOrderPtr>{nullptr, nullptr, nullptr, heads}
              : std::vector<planner::DimOrderPtr>{});
  }
  const Placement whole = Placement::replicate();
};

TEST_F(DescribeParametersTest, BlocksThatDifferAreToldApart) {
  const auto m = mesh(1, 1, 2);
  const auto sharded = spec(m, whole, Placement::shard(1), {4, 6});
  const auto kept = spec(m, whole, whole, {4, 6});
  std::vector<DescribedParameter> parameters = {{"wte.weight", kept, ""}};
  for (const int block : {0, 1, 2, 3, 5, 10})
    parameters.push_back(
        {"h." + std::to_string(block) + ".w", block == 0 || block == 5 ? kept : sharded, ""});
  EXPECT_EQ(describe_parameters(parameters),
            "wte.weight [4, 6]  whole on every rank\n"
            "h.[0,5].w [4, 6]  whole on every rank\n"
            "h.[1-3,10].w [4, 6]  tp S(1)\n");
  EXPECT_EQ(describe_parameters({{"h.0.w", kept, ""}, {"h.1.w", sharded, ""}}),
            "h.0.w [4, 6]  whole on every rank\nh.1.w [4, 6]  tp S(1)\n");
  // A list without a name before the number, and a root parameter of the same name.
  EXPECT_EQ(describe_parameters({{"0.w", sharded, ""}, {"1.w", sharded, ""}, {".w", sharded, ""}}),
            "[0-1].w [4, 6]  tp S(1)\n.w [4, 6]  tp S(1)\n");
}

TEST_F(DescribeParametersTest, FsdpAndCpAsOneDim) {
  const auto flat = std::make_shared<const planner::MeshLayout>(
      std::vector<planner::MeshDim>{{"dp", 1}, {"fsdp_cp", 4}, {"tp", 1}});
  const auto spec = [&](Placement placement) {
    return std::make_shared<const DTensorSpec>(flat, planner::Placements{whole, placement, whole},
                                               Shape{8, 6});
  };
  EXPECT_EQ(describe_parameters({{"w", spec(Placement::shard(0)), "dim0"},
                                 {"b", spec(whole), "below min_elements"}}),
            "w [8, 6]  fsdp_cp S(0) (dim0)\nb [8, 6]  fsdp_cp whole (below min_elements)\n");
}

TEST_F(DescribeParametersTest, ShardsAreToldByTheNamesOfMeshDims) {
  const auto both = mesh(2, 2, 3);
  const auto heads = DimOrder::blocked(24, 3, 3, 2);
  EXPECT_EQ(describe_parameters(
                {{"qkv", spec(both, Placement::shard(0), Placement::shard(1), {8, 24}, {}, heads),
                  "dim0"}}),
            "qkv [8, 24]  fsdp S(0) (dim0), tp S(1) by heads, 3 x 2\n");
  EXPECT_EQ(describe_parameters({{"q",
                                  spec(both, Placement::shard(0), Placement::shard(0), {24, 8},
                                       {{0, {3, 1}}}, DimOrder::blocked(24, 3, 1, 5)),
                                  "override"}}),
            "q [24, 8]  fsdp S(0) (override), tp S(0) by heads of 5, tp before fsdp\n");
  EXPECT_EQ(describe_parameters({{"b", spec(both, whole, whole, {8}), "small"}}),
            "b [8]  fsdp whole (small)\n");
  // A dim of one rank shards nothing.
  EXPECT_EQ(describe_parameters({{"b", spec(mesh(1, 1, 2), Placement::shard(0), whole, {8}), ""}}),
            "b [8]  whole on every rank\n");
}

}  // namespace
}  // namespace meshloom::train
