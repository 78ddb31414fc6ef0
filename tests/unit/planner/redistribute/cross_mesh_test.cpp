// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/cross_mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"
#include "planner/redistribute/exchange.h"
#include "tests/support/simulate_plan.h"
#include "tests/unit/planner/redistribute/spec_maker.h"

namespace meshloom::planner {
namespace {

/// A mesh over some ranks of a world of 12, in any order.
MeshPtr draw_ranks(std::mt19937& random) {
  const MeshPtr shape = draw_mesh(random, 2);
  std::vector<int> ranks(12);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random);
  ranks.resize(static_cast<std::size_t>(shape->size()));
  return std::make_shared<const MeshLayout>(shape->dims(), ranks);
}

TEST(CrossMesh, RandomPlansEndAtTheirTarget) {
  std::mt19937 random(21);
  for (int i = 0; i < 1500; ++i) {
    const MeshPtr source = draw_ranks(random), target = draw_ranks(random);
    const Shape shape = draw_shape(random);
    const SpecPtr from = draw_spec(random, source, shape, {true, true, true, true});
    const SpecPtr to = draw_spec(random, target, shape, {false, true, true, true});
    if (*source == *target) continue;
    const PlanPtr plan = plan_redistribute(from, to);
    ASSERT_NO_THROW(test::simulate_plan(*plan))
        << to_string(*from) << " on " << to_string(*source) << " -> " << to_string(*to) << " on "
        << to_string(*target) << "\n"
        << plan->to_string();
    EXPECT_EQ(*plan->to, *to);
  }
}

MeshPtr mesh_of_ranks(std::vector<MeshDim> dims, std::vector<int> ranks) {
  return std::make_shared<const MeshLayout>(std::move(dims), std::move(ranks));
}

TEST(CrossMesh, SendsToRanksOfAnotherPlace) {
  const MeshPtr source = mesh_of_ranks({{"", 2}}, {0, 1}),
                target = mesh_of_ranks({{"", 2}}, {2, 3});
  const SpecPtr from = make_spec(source, {"S(0)"}, {4, 4}),
                to = make_spec(target, {"S(1)"}, {4, 4});
  const PlanPtr plan = plan_redistribute(from, to);
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(plan->steps[0].kind, StepKind::kSendRecv);
  EXPECT_EQ(plan->steps[0].bytes, 32);
  const StepMembers members = crossing_members(plan->steps[0]);
  EXPECT_EQ(members.from, (std::vector<int>{0, 1, -1, -1}));
  EXPECT_EQ(members.to, (std::vector<int>{-1, -1, 0, 1}));
  const RankExchange sender = rank_exchange(plan->steps[0], members, 1);
  ASSERT_EQ(sender.sends.size(), 4u);
  EXPECT_TRUE(sender.sends[0].empty());
  EXPECT_EQ(sender.sends[3], (Boxes{{{0, 2}, {2, 0}, {2, 2}}}));
  EXPECT_EQ(sender.after[3], (Shape{4, 2}));
  EXPECT_EQ(sender.after[1], (Shape{0}));
  for (const Boxes& boxes : sender.receives) EXPECT_TRUE(boxes.empty());
}

TEST(CrossMesh, KeepsWhatARankHas) {
  // The same ranks under another shape, the same shards: nothing travels.
  const MeshPtr flat = make_mesh({4}), square = make_mesh({2, 2});
  const PlanPtr plan = plan_redistribute(make_spec(flat, {"S(0)"}, {8, 4}),
                                         make_spec(square, {"S(0)", "S(0)"}, {8, 4}));
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(plan->steps[0].bytes, 0);
  for (int rank = 0; rank < 4; ++rank) {
    const RankExchange exchange =
        rank_exchange(plan->steps[0], crossing_members(plan->steps[0]), rank);
    EXPECT_EQ(count_elements(exchange.kept), 8);
    for (const Boxes& boxes : exchange.sends) EXPECT_TRUE(boxes.empty());
  }
}

TEST(CrossMesh, SharesTheSendingAmongCopies) {
  const MeshPtr source = mesh_of_ranks({{"", 4}}, {0, 1, 2, 3});
  const MeshPtr target = mesh_of_ranks({{"", 4}}, {4, 5, 6, 7});
  const PlanPtr plan =
      plan_redistribute(make_spec(source, {"R"}, {8, 4}), make_spec(target, {"S(0)"}, {8, 4}));
  for (int rank = 0; rank < 4; ++rank) {
    int receivers = 0;
    const StepMembers members = crossing_members(plan->steps[0]);
    for (const Boxes& boxes : rank_exchange(plan->steps[0], members, rank).sends)
      receivers += boxes.empty() ? 0 : 1;
    EXPECT_EQ(receivers, 1);
  }
}

TEST(CrossMesh, ReducesBeforeItSends) {
  const MeshPtr source = make_mesh({2, 2});
  const MeshPtr target = mesh_of_ranks({{"", 3}}, {4, 5, 6});
  const SpecPtr from = make_spec(source, {"P", "S(0)"}, {600, 40});
  const PlanPtr plan = plan_redistribute(from, make_spec(target, {"S(1)"}, {600, 40}));
  ASSERT_EQ(plan->steps.size(), 2u) << plan->to_string();
  EXPECT_EQ(plan->steps[0].kind, StepKind::kReduceScatter);
  EXPECT_EQ(plan->steps[1].kind, StepKind::kSendRecv);
  test::simulate_plan(*plan);
  const PlanPtr partial = plan_redistribute(from, make_spec(target, {"P"}, {600, 40}));
  EXPECT_EQ(partial->steps.back().kind, StepKind::kToPartial);
  test::simulate_plan(*partial);
  EXPECT_THROW(plan_redistribute(from, make_spec(target, {"P(max)"}, {600, 40})), InvalidArgument);
}

TEST(CrossMesh, HundredThousandRanks) {
  const MeshPtr source = make_mesh({100000}), target = make_mesh({1000, 100});
  const Shape shape{1 << 22, 8};
  const PlanPtr plan = plan_redistribute(make_spec(source, {"S(0)"}, shape),
                                         make_spec(target, {"S(0)", "S(1)"}, shape));
  EXPECT_EQ(plan->steps.size(), 1u);
}

}  // namespace
}  // namespace meshloom::planner
