// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/search.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "planner/redistribute/planner.h"
#include "tests/support/simulate_plan.h"
#include "tests/unit/planner/redistribute/byte_reference.h"
#include "tests/unit/planner/redistribute/spec_maker.h"

namespace meshloom::planner {
namespace {

/// A layout for the reference search, written as text, and its own rules: what each mesh dim holds
/// and, by tensor dim, the stack of mesh dims that shard it.
struct PlainState {
  std::vector<std::string> held;
  std::map<int, std::vector<int>> stacks;

  bool operator<(const PlainState& other) const {
    return std::tie(held, stacks) < std::tie(other.held, other.stacks);
  }
};

PlainState plain_state(const DTensorSpec& spec) {
  PlainState state;
  for (const Placement& placement : spec.placements()) state.held.push_back(to_string(placement));
  for (const DimShardOrder& entry : spec.shard_order())
    state.stacks[entry.tensor_dim] = entry.mesh_dims;
  return state;
}

/// PyTorch's transitions with their unit costs, by the table of the reference.
std::vector<std::pair<PlainState, double>> neighbours(const PlainState& state,
                                                      const PlainState& goal, int tensor_dims) {
  std::vector<std::pair<PlainState, double>> result;
  for (std::size_t m = 0; m < state.held.size(); ++m) {
    PlainState base = state;
    const std::string was = state.held[m];
    if (was[0] == 'S') {
      const int d = was[2] - '0';
      if (state.stacks.at(d).back() != static_cast<int>(m)) continue;
      base.stacks[d].pop_back();
      if (base.stacks[d].empty()) base.stacks.erase(d);
    }
    base.held[m] = "R";
    if (was != "R") result.emplace_back(base, was[0] == 'S' ? 2.0 : 4.0);
    for (int d = 0; d < tensor_dims; ++d) {
      PlainState next = base;
      next.held[m] = "S(" + std::to_string(d) + ")";
      next.stacks[d].push_back(static_cast<int>(m));
      if (next.held[m] != was)
        result.emplace_back(next, was == "R" ? 0.0 : was[0] == 'S' ? 1.0 : 2.0);
    }
    const bool linear = was == "P(sum)" || was == "P(avg)";
    if (goal.held[m][0] == 'P' && goal.held[m] != was && (linear || was[0] != 'P')) {
      PlainState next = base;
      next.held[m] = goal.held[m];
      result.emplace_back(next, 0.0);
    }
  }
  return result;
}

/// Relaxes all edges until nothing changes: no queue, no bound.
double reference_unit_cost(const DTensorSpec& from, const DTensorSpec& to) {
  const PlainState goal = plain_state(to);
  std::map<PlainState, double> cost{{plain_state(from), 0.0}};
  for (bool changed = true; changed;) {
    changed = false;
    const std::map<PlainState, double> known = cost;
    for (const auto& [state, spent] : known)
      for (const auto& [next, step] : neighbours(state, goal, from.shape().size())) {
        const auto at = cost.find(next);
        if (at != cost.end() && at->second <= spent + step) continue;
        cost[next] = spent + step;
        changed = true;
      }
  }
  return cost.at(goal);
}

RedistributeOptions unit_options(PlannerKind planner) {
  RedistributeOptions options;
  options.planner = planner;
  options.cost_model = CostModel::kUnit;
  return options;
}

TEST(Search, UnitPlansAreOptimal) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    const MeshPtr mesh = i % 3 == 0 ? make_mesh({2, 2, 2}) : make_mesh({2, 3});
    const Shape shape = i % 2 == 0 ? Shape{6, 5} : Shape{6, 5, 4};
    const SpecPtr from = draw_spec(random, mesh, shape, {true, true, false});
    const SpecPtr to = draw_target(random, *from, {true, true, false});
    const PlanPtr plan = plan_redistribute(from, to, unit_options(PlannerKind::kMinCost));
    double cost = 0.0;
    for (const RedistributeStep& step : plan->steps) cost += unit_cost(step.kind);
    EXPECT_EQ(plan->cost, cost);
    EXPECT_EQ(plan->cost, reference_unit_cost(*from, *to))
        << to_string(*from) << " -> " << to_string(*to) << "\n"
        << plan->to_string();
  }
}

/// Small, middling and large tensors; hosts that end within mesh dims and between them.
std::vector<RedistributeOptions> byte_options() {
  std::vector<RedistributeOptions> list;
  for (const int ranks_per_host : {2, 3, 8})
    for (const int element_size : {1, 4, 1 << 12, 1 << 20}) {
      RedistributeOptions options;
      auto topology = std::make_shared<Topology>();
      topology->ranks_per_host = ranks_per_host;
      options.topology = topology;
      options.element_size = element_size;
      list.push_back(options);
    }
  return list;
}

/// Compares plans with the cheapest way that the reference finds.
void compare_byte_plans(const std::vector<int>& mesh_sizes, const std::vector<Shape>& shapes,
                        std::size_t plans, unsigned seed) {
  std::mt19937 random(seed);
  const std::vector<RedistributeOptions> options = byte_options();
  for (std::size_t i = 0; i < plans; ++i) {
    const MeshPtr mesh = make_mesh(mesh_sizes);
    const SpecDraw draw{true, true, i % 5 == 0};
    const SpecPtr from = draw_spec(random, mesh, shapes[i % shapes.size()], draw);
    const SpecPtr to = draw_target(random, *from, draw);
    const RedistributeOptions& chosen = options[i % options.size()];
    const SearchSpace space(from, to);
    const StepCost cost(space, chosen);
    const double best = reference_seconds(space, cost);
    const PlanPtr plan = plan_redistribute(from, to, chosen);
    double total = 0.0;
    for (const RedistributeStep& step : plan->steps) total += step.cost;
    EXPECT_NEAR(plan->cost, total, 1e-9 * total);
    EXPECT_NEAR(plan->cost, best, 1e-9 * best)
        << to_string(*mesh) << " " << to_string(*from) << " -> " << to_string(*to)
        << ", elements of " << chosen.element_size << " bytes\n"
        << plan->to_string();
    ASSERT_NO_THROW(test::simulate_plan(*plan));
  }
}

TEST(Search, BytePlansOnOneAndTwoDimsAreOptimalOverAllMoves) {
  const std::vector<Shape> shapes{{6, 5}, {16, 15, 8}, {1, 7, 4}};
  compare_byte_plans({4}, shapes, 200, 13);
  compare_byte_plans({2, 3}, shapes, 1500, 12);
}

TEST(Search, BytePlansOnThreeDimsAreOptimalOverAllMoves) {
  const std::vector<Shape> shapes{{6, 5}, {16, 15, 8}, {64, 48}, {7, 3, 1}, {16, 16, 16}};
  compare_byte_plans({2, 2, 2}, shapes, 500, 14);
  compare_byte_plans({2, 3, 2}, shapes, 300, 15);
  compare_byte_plans({4, 2, 3}, shapes, 200, 16);
}

TEST(Search, BytePlansOnFourDimsAreOptimalOverAllMoves) {
  compare_byte_plans({2, 2, 2, 2}, {{6, 5}, {64, 48}, {17, 1}, {16, 32}}, 100, 17);
  compare_byte_plans({2, 3, 2, 2}, {{24, 48}, {13, 5}}, 40, 18);
  compare_byte_plans({2, 2, 2, 2}, {{16, 15, 8}, {16, 16, 16}}, 6, 19);
}

TEST(Search, BytePlansAreNeverDearerThanGreedyOnes) {
  std::mt19937 random(15);
  const std::vector<RedistributeOptions> options = byte_options();
  int cheaper = 0;
  for (int i = 0; i < 3000; ++i) {
    const MeshPtr mesh = draw_mesh(random, 4);
    const SpecPtr from = draw_spec(random, mesh, draw_shape(random), {true, false, false});
    const SpecPtr to = draw_target(random, *from, {true, false, false});
    RedistributeOptions chosen = options[static_cast<std::size_t>(i) % options.size()];
    const PlanPtr searched = plan_redistribute(from, to, chosen);
    chosen.planner = PlannerKind::kGreedy;
    const PlanPtr greedy = plan_redistribute(from, to, chosen);
    EXPECT_LE(searched->cost, greedy->cost * (1 + 1e-9))
        << to_string(*from) << " -> " << to_string(*to) << "\n"
        << searched->to_string() << "greedy:\n"
        << greedy->to_string();
    cheaper += searched->cost < greedy->cost * 0.999 ? 1 : 0;
  }
  EXPECT_GT(cheaper, 200);
}

TEST(Search, PlansDependOnTheLayoutsAlone) {
  std::mt19937 random(16);
  for (int i = 0; i < 100; ++i) {
    const MeshPtr mesh = make_mesh({2, 2, 2});
    const SpecPtr from = draw_spec(random, mesh, {8, 6, 4}, {true, true, false});
    const SpecPtr to = draw_target(random, *from, {true, true, false});
    EXPECT_EQ(plan_redistribute(from, to)->to_string(),
              plan_redistribute(std::make_shared<const DTensorSpec>(*from),
                                std::make_shared<const DTensorSpec>(*to))
                  ->to_string());
  }
}

}  // namespace
}  // namespace meshloom::planner
