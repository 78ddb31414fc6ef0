// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/planner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "kernels/base/error.h"
#include "tests/support/simulate_plan.h"
#include "tests/unit/planner/redistribute/spec_maker.h"

namespace meshloom::planner {
namespace {

using Texts = std::vector<std::string>;
using Counts = std::map<std::string, int>;

Counts counts_of(const RedistributePlan& plan) {
  Counts counts;
  for (const RedistributeStep& step : plan.steps)
    if (!is_local(step.kind)) ++counts[step_name(step.kind)];
  return counts;
}

RedistributeOptions greedy_options() {
  RedistributeOptions options;
  options.planner = PlannerKind::kGreedy;
  return options;
}

RedistributeOptions unit_options() {
  RedistributeOptions options;
  options.cost_model = CostModel::kUnit;
  return options;
}

PlanPtr plan_of(const std::vector<int>& mesh, const Texts& from, const Texts& to,
                const Shape& shape, const RedistributeOptions& options = {}) {
  const MeshPtr layout = make_mesh(mesh);
  const PlanPtr plan =
      plan_redistribute(make_spec(layout, from, shape), make_spec(layout, to, shape), options);
  test::simulate_plan(*plan);
  return plan;
}

constexpr const char* kGather = "all_gather";
constexpr const char* kReduce = "all_reduce";
constexpr const char* kScatter = "reduce_scatter";
constexpr const char* kExchange = "all_to_all";

TEST(PlanRedistribute, OneDimensionIsOneStep) {
  struct Row {
    const char *from, *to;
    Counts counts;
  };
  const Row rows[] = {{"S(0)", "R", {{kGather, 1}}},
                      {"R", "R", {}},
                      {"P", "P", {}},
                      {"R", "S(0)", {}},
                      {"P", "R", {{kReduce, 1}}},
                      {"P", "S(0)", {{kScatter, 1}}},
                      {"S(0)", "S(1)", {{kExchange, 1}}},
                      {"R", "P", {}},
                      {"S(1)", "P", {}},
                      {"P(avg)", "P(sum)", {}},
                      {"P(max)", "S(1)", {{kScatter, 1}}}};
  for (const Row& row : rows)
    for (const Shape& shape : {Shape{12, 3}, Shape{13, 3}, Shape{14, 3}, Shape{3, 13}, Shape{2, 1}})
      for (const RedistributeOptions& options : {RedistributeOptions{}, greedy_options()})
        EXPECT_EQ(counts_of(*plan_of({4}, {row.from}, {row.to}, shape, options)), row.counts)
            << row.from << " -> " << row.to;
}

TEST(PlanRedistribute, GreedyCountsAreThoseOfPyTorch) {
  struct Row {
    std::vector<int> mesh;
    Texts from, to;
    Counts counts;
  };
  const Row rows[] = {
      {{2, 2}, {"S(0)", "S(1)"}, {"S(0)", "S(0)"}, {{kExchange, 1}}},
      {{2, 2}, {"S(0)", "S(1)"}, {"S(1)", "S(0)"}, {{kGather, 1}, {kExchange, 1}}},
      {{2, 2}, {"S(0)", "S(0)"}, {"S(1)", "S(1)"}, {{kGather, 1}, {kExchange, 1}}},
      {{2, 2}, {"S(0)", "S(2)"}, {"S(1)", "S(0)"}, {{kGather, 1}, {kExchange, 1}}},
      {{2, 2}, {"S(1)", "S(1)"}, {"S(1)", "S(2)"}, {{kExchange, 1}}},
      {{2, 2, 2},
       {"S(0)", "S(0)", "S(0)"},
       {"S(1)", "S(1)", "S(1)"},
       {{kGather, 2}, {kExchange, 1}}},
      {{2, 2, 2},
       {"S(0)", "S(1)", "S(0)"},
       {"S(1)", "S(0)", "S(0)"},
       {{kGather, 2}, {kExchange, 1}}},
      {{2, 2, 2},
       {"S(0)", "S(1)", "S(2)"},
       {"S(2)", "S(1)", "S(0)"},
       {{kGather, 1}, {kExchange, 1}}},
      {{2, 2, 2}, {"S(1)", "S(0)", "S(0)"}, {"R", "S(0)", "S(0)"}, {{kGather, 1}}},
      {{2, 2}, {"S(0)", "S(0)"}, {"R", "S(0)"}, {{kGather, 2}}},
      {{2, 2}, {"R", "S(0)"}, {"S(0)", "S(0)"}, {{kGather, 1}}},
      {{2, 2}, {"S(0)", "P"}, {"R", "S(0)"}, {{kReduce, 1}, {kGather, 1}}},
      {{2, 2}, {"P", "S(0)"}, {"S(0)", "S(0)"}, {{kScatter, 1}, {kGather, 1}}},
  };
  for (const Row& row : rows)
    EXPECT_EQ(counts_of(*plan_of(row.mesh, row.from, row.to, {8, 8, 8}, greedy_options())),
              row.counts);
}

TEST(PlanRedistribute, UnitCostsAreThoseOfPyTorchsGraph) {
  const auto cost = [](const std::vector<int>& mesh, const Texts& from, const Texts& to) {
    return plan_of(mesh, from, to, {8, 8, 8}, unit_options())->cost;
  };
  EXPECT_EQ(cost({2, 2}, {"S(0)", "S(0)"}, {"R", "S(0)"}), 4);
  EXPECT_EQ(cost({2, 2}, {"R", "S(0)"}, {"S(0)", "S(0)"}), 2);
  EXPECT_EQ(cost({2, 2}, {"S(0)", "P"}, {"R", "S(0)"}), 4);
  EXPECT_EQ(cost({2, 2}, {"P", "S(0)"}, {"S(0)", "S(0)"}), 4);
  EXPECT_EQ(cost({2, 2, 2}, {"S(0)", "S(1)", "S(2)"}, {"S(2)", "S(1)", "S(0)"}), 3);
  EXPECT_EQ(cost({2, 2, 2}, {"S(0)", "S(0)", "S(0)"}, {"S(1)", "S(1)", "S(1)"}), 5);
}

TEST(PlanRedistribute, MergesNeighbouringCollectives) {
  struct Row {
    Texts from, to;
    Counts counts;
  };
  const Row rows[] = {
      {{"P", "P"}, {"R", "R"}, {{kReduce, 1}}},
      {{"P", "P"}, {"S(0)", "S(0)"}, {{kScatter, 1}}},
      {{"S(0)", "S(0)"}, {"R", "R"}, {{kGather, 1}}},
      {{"P", "P", "P"}, {"R", "R", "R"}, {{kReduce, 1}}},
      {{"P", "R", "P"}, {"R", "R", "R"}, {{kReduce, 1}}},
      {{"P(avg)", "P(avg)", "P(sum)"}, {"R", "R", "R"}, {{kReduce, 1}}},
      {{"P", "S(0)", "P"}, {"R", "R", "R"}, {{kReduce, 1}, {kGather, 1}}},
      {{"P(max)", "P(max)"}, {"R", "R"}, {{kReduce, 1}}},
  };
  for (const Row& row : rows)
    EXPECT_EQ(counts_of(*plan_of(std::vector<int>(row.from.size(), 2), row.from, row.to, {8, 8})),
              row.counts)
        << to_string(make_placements(row.from)) << " -> " << to_string(make_placements(row.to));
}

TEST(PlanRedistribute, SumsSmallTensorsWholeAndLargeOnesInParts) {
  const MeshPtr mesh = make_mesh({2, 2});
  for (const std::int64_t size : {8, 4096}) {
    const SpecPtr from = make_spec(mesh, {"P", "P"}, {size, size});
    const SpecPtr to = make_spec(mesh, {"S(0)", "S(1)"}, {size, size});
    EXPECT_EQ(counts_of(*plan_redistribute(from, to)),
              size == 8 ? (Counts{{kReduce, 1}}) : (Counts{{kScatter, 2}}));
  }
}

TEST(PlanRedistribute, MergesReductionsInRankOrder) {
  const PlanPtr plan = plan_of({2, 2, 2}, {"P", "S(0)", "P"}, {"R", "S(0)", "R"}, {8, 8});
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(plan->steps[0].mesh_dims, (std::vector<int>{0, 2}));
}

TEST(PlanRedistribute, LeavesCollectivesApartWhereThatIsCheaper) {
  // 16 hosts of 8: gathering inside hosts last keeps most bytes off the network.
  const MeshPtr mesh = make_mesh({16, 8});
  const Shape shape{1 << 20, 64};
  const SpecPtr from = make_spec(mesh, {"S(0)", "S(0)"}, shape, {{0, {1, 0}}});
  const PlanPtr plan = plan_redistribute(from, make_spec(mesh, {"R", "R"}, shape));
  ASSERT_EQ(plan->steps.size(), 2u) << plan->to_string();
  EXPECT_EQ(plan->steps[0].mesh_dims, std::vector<int>{0});
  EXPECT_EQ(plan->steps[1].mesh_dims, std::vector<int>{1});
  // And a large sum between hosts is split inside each of them first.
  const PlanPtr sum =
      plan_redistribute(make_spec(mesh, {"P", "P"}, shape), make_spec(mesh, {"R", "R"}, shape));
  ASSERT_EQ(sum->steps.size(), 3u) << sum->to_string();
  EXPECT_EQ(sum->steps[0].kind, StepKind::kReduceScatter);
  EXPECT_EQ(sum->steps[0].mesh_dims, std::vector<int>{1});
  EXPECT_EQ(sum->steps[1].kind, StepKind::kAllReduce);
  EXPECT_EQ(sum->steps[2].kind, StepKind::kAllGather);
}

TEST(PlanRedistribute, ExchangesShardsDirectly) {
  const MeshPtr mesh = make_mesh({2, 3});
  const SpecPtr nested = make_spec(mesh, {"S(0)", "S(0)"}, {13, 7});
  const SpecPtr ends[] = {make_spec(mesh, {"S(0)", "S(0)"}, {13, 7}, {{0, {1, 0}}}),
                          make_spec(mesh, {"S(1)", "S(1)"}, {13, 7}),
                          make_spec(mesh, {"S(1)", "S(0)"}, {13, 7})};
  for (const SpecPtr& to : ends) {
    const PlanPtr plan = plan_redistribute(nested, to);
    ASSERT_EQ(plan->steps.size(), 1u) << plan->to_string();
    EXPECT_EQ(plan->steps[0].kind, StepKind::kAllToAll);
    EXPECT_EQ(plan->steps[0].mesh_dims, (std::vector<int>{0, 1}));
    test::simulate_plan(*plan);
  }
}

TEST(PlanRedistribute, ChangesDimOrders) {
  const MeshPtr mesh = make_mesh({4});
  const Shape shape{12, 5};
  const DimOrderPtr heads = DimOrder::blocked(12, 4, 3, 1);
  const DimOrderPtr zigzag =
      DimOrder::listed(12, {{{0, 2}, {11, 12}}, {{2, 4}, {10, 11}}, {{4, 6}, {9, 10}}, {{6, 9}}});
  const SpecPtr plain = make_spec(mesh, {"S(0)"}, shape);
  const SpecPtr by_heads = make_spec(mesh, {"S(0)"}, shape, {}, {heads});
  const SpecPtr by_zigzag = make_spec(mesh, {"S(0)"}, shape, {}, {zigzag});
  const SpecPtr whole = make_spec(mesh, {"R"}, shape);
  const std::pair<SpecPtr, SpecPtr> exchanges[] = {
      {plain, by_heads}, {by_heads, plain}, {by_heads, by_zigzag}};
  for (const auto& [from, to] : exchanges) {
    const PlanPtr plan = plan_redistribute(from, to);
    EXPECT_EQ(counts_of(*plan), (Counts{{kExchange, 1}})) << plan->to_string();
    test::simulate_plan(*plan);
  }
  for (const SpecPtr& sharded : {by_heads, by_zigzag}) {
    EXPECT_EQ(counts_of(*plan_redistribute(sharded, whole)), (Counts{{kGather, 1}}));
    EXPECT_EQ(plan_redistribute(whole, sharded)->comm_count(), 0);
    EXPECT_TRUE(plan_redistribute(sharded, sharded)->steps.empty());
    test::simulate_plan(*plan_redistribute(sharded, whole));
    test::simulate_plan(*plan_redistribute(whole, sharded));
  }
}

TEST(PlanRedistribute, ChangesOrdersByRow) {
  const MeshPtr mesh = make_mesh({2, 2});
  const Shape shape{3, 4};
  const auto rows = [](int row_dim, std::int64_t count) {
    std::vector<std::vector<IndexRanges>> lists;
    for (std::int64_t row = 0; row < count; ++row)
      lists.push_back(row % 2 == 0 ? std::vector<IndexRanges>{{{0, 1}, {2, 3}}, {{1, 2}}}
                                   : std::vector<IndexRanges>{{{1, 3}}, {{0, 1}}});
    if (row_dim == 0)
      for (auto& row : lists) row[1].push_back({3, 4});
    return DimOrder::listed_by_row(row_dim == 0 ? 4 : 3, row_dim, lists);
  };
  const DimOrderPtr columns_by_row = rows(0, 3), rows_by_column = rows(1, 4);
  const SpecPtr by_row = make_spec(mesh, {"S(1)", "R"}, shape, {}, {columns_by_row, nullptr});
  const SpecPtr by_column = make_spec(mesh, {"R", "S(0)"}, shape, {}, {nullptr, rows_by_column});
  const SpecPtr plain = make_spec(mesh, {"S(1)", "R"}, shape),
                whole = make_spec(mesh, {"R", "R"}, shape);
  EXPECT_EQ(counts_of(*plan_redistribute(by_row, plain)), (Counts{{kExchange, 1}}));
  EXPECT_EQ(counts_of(*plan_redistribute(by_row, whole)), (Counts{{kGather, 1}}));
  EXPECT_EQ(plan_redistribute(whole, by_row)->comm_count(), 0);
  EXPECT_TRUE(
      plan_redistribute(by_row, make_spec(mesh, {"S(1)", "R"}, shape, {}, {rows(0, 3), nullptr}))
          ->steps.empty());
  // Both at once would be no layout: the one goes before the other comes.
  for (const RedistributeOptions& options : {RedistributeOptions{}, unit_options()})
    for (const auto& [from, to] : {std::pair(by_row, by_column), std::pair(by_column, by_row)}) {
      const PlanPtr plan = plan_redistribute(from, to, options);
      test::simulate_plan(*plan);
    }
}

TEST(PlanRedistribute, MovesADimOrderToAnotherTensorDim) {
  const MeshPtr mesh = make_mesh({2});
  const Shape shape{12, 12};
  const DimOrderPtr order = DimOrder::blocked(12, 2, 3, 1);
  const SpecPtr rows = make_spec(mesh, {"S(0)"}, shape, {}, {order});
  const SpecPtr columns = make_spec(mesh, {"S(1)"}, shape, {}, {order});
  for (const RedistributeOptions& options : {RedistributeOptions{}, unit_options()}) {
    const PlanPtr plan = plan_redistribute(rows, columns, options);
    EXPECT_EQ(counts_of(*plan), (Counts{{kExchange, 1}}));
    test::simulate_plan(*plan);
  }
}

TEST(PlanRedistribute, MeshDimsOfSizeOneCostNothing) {
  for (const char* from : {"S(1)", "R", "P", "P(max)"})
    for (const char* to : {"S(0)", "S(1)", "R"})
      for (const RedistributeOptions& options :
           {RedistributeOptions{}, greedy_options(), unit_options()}) {
        const PlanPtr plan = plan_of({4, 1}, {"S(0)", from}, {"S(0)", to}, {6, 5}, options);
        EXPECT_TRUE(plan->steps.empty());
        EXPECT_EQ(plan->cost, 0.0);
        const PlanPtr gather = plan_of({4, 1}, {"S(0)", from}, {"R", to}, {6, 5}, options);
        ASSERT_EQ(gather->steps.size(), 1u);
        EXPECT_EQ(*gather->steps[0].to, *gather->to);
      }
}

TEST(PlanRedistribute, PrintsItself) {
  const PlanPtr plan = plan_of({2, 2}, {"S(0)", "R"}, {"R", "S(1)"}, {24, 32});
  EXPECT_EQ(plan->to_string(),
            "slice over 1: [S(0), R] -> [S(0), S(1)]\n"
            "all_gather over 0: [S(0), S(1)] -> [R, S(1)] (768 bytes)\n");
  EXPECT_EQ(plan->comm_count(), 1);
}

/// `from` to `to` must be refused, naming the Partial that cannot be.
void expect_partial_error(const Texts& from, const Texts& to) {
  for (const RedistributeOptions& options :
       {RedistributeOptions{}, greedy_options(), unit_options()}) {
    try {
      plan_of(std::vector<int>(from.size(), 2), from, to, {8, 6}, options);
      ADD_FAILURE() << to_string(make_placements(from)) << " -> " << to_string(make_placements(to));
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("Partial"), std::string::npos) << error.what();
    }
  }
}

TEST(PlanRedistribute, RefusesOtherChangesIntoPartial) {
  expect_partial_error({"S(0)"}, {"P(max)"});
  expect_partial_error({"S(0)"}, {"P(avg)"});
  expect_partial_error({"R"}, {"P(min)"});
  expect_partial_error({"P(sum)"}, {"P(max)"});
  expect_partial_error({"P(min)"}, {"P(sum)"});
  expect_partial_error({"P(max)"}, {"P(avg)"});
  expect_partial_error({"S(0)", "P"}, {"R", "P(max)"});
}

TEST(PlanRedistribute, RefusesWhatDoesNotGoTogether) {
  const MeshPtr mesh = make_mesh({2});
  const SpecPtr spec = make_spec(mesh, {"R"}, {8});
  EXPECT_THROW(plan_redistribute(nullptr, spec), InvalidArgument);
  EXPECT_THROW(plan_redistribute(spec, make_spec(mesh, {"R"}, {9})), InvalidArgument);
  const SpecPtr other = make_spec(make_mesh({4}), {"R"}, {8});
  EXPECT_THROW(plan_redistribute(spec, other, greedy_options()), InvalidArgument);
  EXPECT_THROW(plan_redistribute(spec, other, unit_options()), InvalidArgument);
  const std::vector<int> eight(8, 2);
  EXPECT_THROW(plan_of(eight, Texts(8, "R"), Texts(8, "S(0)"), {512}), InvalidArgument);
}

TEST(PlanRedistribute, HundredThousandRanks) {
  const MeshPtr mesh = make_mesh({25, 64, 8, 8});
  const Shape shape{1 << 20, 4096, 13};
  const SpecPtr layouts[] = {make_spec(mesh, {"P", "S(0)", "S(0)", "S(1)"}, shape),
                             make_spec(mesh, {"S(0)", "S(0)", "R", "S(1)"}, shape),
                             make_spec(mesh, {"S(1)", "R", "S(0)", "S(2)"}, shape),
                             make_spec(mesh, {"R", "R", "R", "R"}, shape)};
  for (const SpecPtr& from : layouts)
    for (const SpecPtr& to : layouts) {
      if (to->has_partial()) continue;
      const PlanPtr plan = plan_redistribute(from, to);
      EXPECT_EQ(plan->steps.empty(), from == to);
      EXPECT_TRUE(plan->steps.empty() || *plan->steps.back().to == *to);
    }
}

TEST(PlanCache, FindsPlansByObjectAndByValue) {
  PlanCache cache;
  const MeshPtr mesh = make_mesh({2, 2});
  const SpecPtr from = make_spec(mesh, {"S(0)", "R"}, {8, 8});
  const SpecPtr to = make_spec(mesh, {"R", "S(1)"}, {8, 8});
  const RedistributePlan& plan = cache.plan(from, to);
  EXPECT_EQ(&cache.plan(from, to), &plan);
  EXPECT_EQ(&cache.plan(make_spec(mesh, {"S(0)", "R"}, {8, 8}), to), &plan);
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_NE(&cache.plan(to, from), &plan);
  EXPECT_NE(
      &cache.plan(make_spec(mesh, {"S(0)", "R"}, {8, 9}), make_spec(mesh, {"R", "S(1)"}, {8, 9})),
      &plan);
  EXPECT_EQ(cache.size(), 3u);
}

TEST(PlanCache, KeepsPlansOfObjectsThatComeAndGo) {
  PlanCache cache;
  const MeshPtr mesh = make_mesh({2, 2});
  const RedistributePlan& plan =
      cache.plan(make_spec(mesh, {"S(0)", "R"}, {8, 8}), make_spec(mesh, {"R", "S(1)"}, {8, 8}));
  for (int i = 0; i < 20000; ++i) {
    const Shape shape{8, 8 + i % 3};
    const RedistributePlan& found =
        cache.plan(make_spec(mesh, {"S(0)", "R"}, shape), make_spec(mesh, {"R", "S(1)"}, shape));
    ASSERT_EQ(found.from->shape(), shape);
    ASSERT_EQ(&found == &plan, i % 3 == 0);
  }
  EXPECT_EQ(cache.size(), 3u);
}

TEST(PlanCache, ForgetsPlansThatNeverComeAgain) {
  PlanCache cache;
  const MeshPtr mesh = make_mesh({2, 2});
  const SpecPtr from = make_spec(mesh, {"S(0)", "R"}, {8, 8});
  const SpecPtr to = make_spec(mesh, {"R", "S(1)"}, {8, 8});
  const RedistributePlan& used = cache.plan(from, to);
  for (int i = 0; i < 40000; ++i) {
    const Shape shape{8, 16 + i};
    cache.plan(make_spec(mesh, {"S(0)", "R"}, shape), make_spec(mesh, {"R", "R"}, shape));
    ASSERT_EQ(&cache.plan(make_spec(mesh, {"S(0)", "R"}, {8, 8}), to), &used);
    ASSERT_EQ(&cache.plan(from, to), &used);
  }
  EXPECT_LT(cache.size(), 10000u);
}

TEST(PlanCache, KeepsNoPlanThatFailed) {
  PlanCache cache;
  const MeshPtr mesh = make_mesh({2});
  const SpecPtr from = make_spec(mesh, {"S(0)"}, {8}), to = make_spec(mesh, {"P(max)"}, {8});
  EXPECT_THROW(cache.plan(from, to), InvalidArgument);
  EXPECT_THROW(cache.plan(from, to), InvalidArgument);
  EXPECT_THROW(cache.plan(from, nullptr), InvalidArgument);
  EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace meshloom::planner
