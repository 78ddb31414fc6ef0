// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/cross_mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"
#include "planner/redistribute/exchange.h"
#include "planner/redistribute/simulate.h"
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
    const SpecPtr from = draw_spec(random, source, shape, {true, true, true});
    const SpecPtr to = draw_spec(random, target, shape, {false, true, true});
    if (*source == *target) continue;
    const PlanPtr plan = plan_redistribute(from, to);
    ASSERT_NO_THROW(simulate_plan(*plan))
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
  const RankExchange sender = send_recv_parts(plan->steps[0], 1);
  ASSERT_EQ(sender.sends.size(), 2u);
  EXPECT_TRUE(sender.receives.empty());
  EXPECT_EQ(sender.sends[1].peer, 3);
  EXPECT_EQ(sender.sends[1].shape, (Shape{2, 2}));
  EXPECT_EQ(sender.sends[1].local, (std::vector<IndexRanges>{{{0, 2}}, {{2, 4}}}));
  EXPECT_TRUE(send_recv_parts(plan->steps[0], 7).sends.empty());
}

TEST(CrossMesh, KeepsWhatARankHas) {
  // The same ranks under another shape, the same shards: nothing travels.
  const MeshPtr flat = make_mesh({4}), square = make_mesh({2, 2});
  const PlanPtr plan = plan_redistribute(make_spec(flat, {"S(0)"}, {8, 4}),
                                         make_spec(square, {"S(0)", "S(0)"}, {8, 4}));
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(plan->steps[0].bytes, 0);
  for (int rank = 0; rank < 4; ++rank) {
    const RankExchange parts = send_recv_parts(plan->steps[0], rank);
    ASSERT_EQ(parts.sends.size(), 1u);
    EXPECT_EQ(parts.sends[0].peer, rank);
  }
}

TEST(CrossMesh, SharesTheSendingAmongCopies) {
  const MeshPtr source = mesh_of_ranks({{"", 4}}, {0, 1, 2, 3});
  const MeshPtr target = mesh_of_ranks({{"", 4}}, {4, 5, 6, 7});
  const PlanPtr plan =
      plan_redistribute(make_spec(source, {"R"}, {8, 4}), make_spec(target, {"S(0)"}, {8, 4}));
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(send_recv_parts(plan->steps[0], rank).sends.size(), 1u);
}

TEST(CrossMesh, ReducesBeforeItSends) {
  const MeshPtr source = make_mesh({2, 2});
  const MeshPtr target = mesh_of_ranks({{"", 3}}, {4, 5, 6});
  const SpecPtr from = make_spec(source, {"P", "S(0)"}, {600, 40});
  const PlanPtr plan = plan_redistribute(from, make_spec(target, {"S(1)"}, {600, 40}));
  ASSERT_EQ(plan->steps.size(), 2u) << plan->to_string();
  EXPECT_EQ(plan->steps[0].kind, StepKind::kReduceScatter);
  EXPECT_EQ(plan->steps[1].kind, StepKind::kSendRecv);
  simulate_plan(*plan);
  const PlanPtr partial = plan_redistribute(from, make_spec(target, {"P"}, {600, 40}));
  EXPECT_EQ(partial->steps.back().kind, StepKind::kToPartial);
  simulate_plan(*partial);
  EXPECT_THROW(plan_redistribute(from, make_spec(target, {"P(max)"}, {600, 40})), InvalidArgument);
}

TEST(CrossMesh, HundredThousandRanks) {
  const MeshPtr source = make_mesh({100000}), target = make_mesh({1000, 100});
  const Shape shape{1 << 22, 8};
  const PlanPtr plan = plan_redistribute(make_spec(source, {"S(0)"}, shape),
                                         make_spec(target, {"S(0)", "S(1)"}, shape));
  EXPECT_EQ(plan->steps.size(), 1u);
}

TEST(CommonRanges, AreTheSameElementsOnBothSides) {
  std::mt19937 random(22);
  for (int i = 0; i < 2000; ++i) {
    const MeshPtr mesh = draw_mesh(random, 2);
    const Shape shape = draw_shape(random);
    const SpecPtr left = draw_spec(random, mesh, shape, {false, true, true});
    const SpecPtr right = draw_spec(random, mesh, shape, {false, true, true});
    const LocalPart a = left->local_part(mesh->coordinates(0));
    const LocalPart b = right->local_part(mesh->coordinates(mesh->size() - 1));
    const CommonRanges common = common_ranges(a, b);
    for (int d = 0; d < shape.size(); ++d) {
      const auto at = static_cast<std::size_t>(d);
      std::vector<std::int64_t> in_a, in_b, expected;
      const auto list = [](const IndexRanges& ranges, std::vector<std::int64_t>& into) {
        for (const ShardRange& range : ranges)
          for (std::int64_t n = range.begin; n < range.end; ++n) into.push_back(n);
      };
      list(a.ranges[at], in_a);
      list(b.ranges[at], in_b);
      for (std::int64_t n = 0; n < shape[d]; ++n)
        if (std::count(in_a.begin(), in_a.end(), n) > 0 &&
            std::count(in_b.begin(), in_b.end(), n) > 0)
          expected.push_back(n);
      if (common.empty()) continue;
      std::vector<std::int64_t> local_a, local_b;
      list(common.in_a[at], local_a);
      list(common.in_b[at], local_b);
      ASSERT_EQ(local_a.size(), expected.size());
      ASSERT_EQ(local_b.size(), expected.size());
      for (std::size_t n = 0; n < expected.size(); ++n) {
        EXPECT_EQ(in_a[static_cast<std::size_t>(local_a[n])], expected[n]);
        EXPECT_EQ(in_b[static_cast<std::size_t>(local_b[n])], expected[n]);
      }
    }
  }
}

}  // namespace
}  // namespace meshloom::planner
