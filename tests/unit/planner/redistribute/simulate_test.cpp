// SPDX-License-Identifier: Apache-2.0
#include "tests/support/simulate_plan.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "planner/redistribute/planner.h"
#include "tests/unit/planner/redistribute/spec_maker.h"

namespace meshloom::planner {
namespace {

RedistributeOptions options_of(PlannerKind planner, CostModel model) {
  RedistributeOptions options;
  options.planner = planner;
  options.cost_model = model;
  return options;
}

/// Every plan between random layouts must end where it says, element by element.
void simulate_random_plans(const RedistributeOptions& options, const SpecDraw& draw, int plans,
                           unsigned seed) {
  std::mt19937 random(seed);
  int steps = 0;
  for (int i = 0; i < plans; ++i) {
    const MeshPtr mesh = draw_mesh(random, 3);
    const SpecPtr from = draw_spec(random, mesh, draw_shape(random), draw);
    const SpecPtr to = draw_target(random, *from, draw);
    const PlanPtr plan = plan_redistribute(from, to, options);
    ASSERT_NO_THROW(test::simulate_plan(*plan))
        << "plan " << i << " on mesh " << to_string(*mesh) << " of "
        << meshloom::to_string(from->shape()) << ": " << to_string(*from) << " -> "
        << to_string(*to) << "\n"
        << plan->to_string();
    steps += static_cast<int>(plan->steps.size());
  }
  EXPECT_GT(steps, plans / 2);
}

TEST(SimulatePlan, GreedyPlansEndAtTheirTarget) {
  simulate_random_plans(options_of(PlannerKind::kGreedy, CostModel::kUnit), {true, false, false},
                        2000, 1);
}

TEST(SimulatePlan, UnitPlansEndAtTheirTarget) {
  simulate_random_plans(options_of(PlannerKind::kMinCost, CostModel::kUnit), {true, true, true},
                        2000, 2);
}

TEST(SimulatePlan, BytePlansEndAtTheirTarget) {
  simulate_random_plans(options_of(PlannerKind::kMinCost, CostModel::kBytes), {true, true, false},
                        3000, 3);
}

TEST(SimulatePlan, BytePlansOfDimOrdersEndAtTheirTarget) {
  simulate_random_plans(options_of(PlannerKind::kMinCost, CostModel::kBytes), {true, true, true},
                        2000, 4);
}

TEST(SimulatePlan, PlansOfOrdersByRowEndAtTheirTarget) {
  simulate_random_plans(options_of(PlannerKind::kMinCost, CostModel::kBytes),
                        {true, true, true, true}, 2500, 6);
  simulate_random_plans(options_of(PlannerKind::kMinCost, CostModel::kUnit),
                        {true, true, true, true}, 1000, 7);
}

TEST(SimulatePlan, BytePlansWithoutLatencyEndAtTheirTarget) {
  RedistributeOptions options;
  auto topology = std::make_shared<Topology>();
  topology->ranks_per_host = 2;
  topology->intra_host = {0.0, 1e3};
  topology->inter_host = {0.0, 1e2};
  topology->hop_seconds = 0.0;
  options.topology = topology;
  simulate_random_plans(options, {true, true, false}, 3000, 5);
}

TEST(SimulatePlan, FindsWrongPlans) {
  const MeshPtr mesh = make_mesh({2, 2});
  const SpecPtr nested = make_spec(mesh, {"S(0)", "S(0)"}, {8, 4});
  const SpecPtr turned = make_spec(mesh, {"S(0)", "S(0)"}, {8, 4}, {{0, {1, 0}}});
  const SpecPtr inner = make_spec(mesh, {"R", "S(0)"}, {8, 4});
  const SpecPtr whole = make_spec(mesh, {"R", "R"}, {8, 4});
  const auto plan_of = [](const SpecPtr& from, const SpecPtr& to, StepKind kind,
                          std::vector<int> dims) {
    RedistributePlan plan{from, to, {}, 0.0};
    plan.steps.push_back({kind, std::move(dims), from, to, 0.0, 0});
    return plan;
  };
  // The outer of two shardings cannot be gathered alone, nor in another order.
  EXPECT_THROW(test::simulate_plan(plan_of(nested, inner, StepKind::kAllGather, {0})),
               InternalError);
  EXPECT_THROW(test::simulate_plan(plan_of(nested, whole, StepKind::kAllGather, {1, 0})),
               InternalError);
  EXPECT_NO_THROW(test::simulate_plan(plan_of(nested, whole, StepKind::kAllGather, {0, 1})));
  EXPECT_NO_THROW(test::simulate_plan(plan_of(turned, inner, StepKind::kAllGather, {0})));
  EXPECT_THROW(test::simulate_plan(plan_of(nested, turned, StepKind::kSlice, {0})), InternalError);
  EXPECT_THROW(test::simulate_plan(plan_of(nested, turned, StepKind::kAllToAll, {0})),
               InternalError);
  EXPECT_NO_THROW(test::simulate_plan(plan_of(nested, turned, StepKind::kAllToAll, {0, 1})));
  // Steps missing, a sum left out, a sum of shards.
  EXPECT_THROW(test::simulate_plan({nested, turned, {}, 0.0}), InternalError);
  const SpecPtr partial = make_spec(mesh, {"P", "P"}, {8, 4});
  EXPECT_THROW(test::simulate_plan(plan_of(partial, whole, StepKind::kAllReduce, {0})),
               InternalError);
  EXPECT_NO_THROW(test::simulate_plan(plan_of(partial, whole, StepKind::kAllReduce, {0, 1})));
  EXPECT_THROW(test::simulate_plan(plan_of(inner, whole, StepKind::kAllReduce, {1})),
               InternalError);
}

}  // namespace
}  // namespace meshloom::planner
