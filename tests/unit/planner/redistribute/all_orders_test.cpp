// SPDX-License-Identifier: Apache-2.0
// Plans between all layouts of small spaces.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "planner/redistribute/planner.h"
#include "tests/support/simulate_plan.h"
#include "tests/unit/planner/redistribute/spec_maker.h"

namespace meshloom::planner {
namespace {

/// Every layout that shards with all mesh dims, in every shard order.
std::vector<SpecPtr> all_sharded_layouts(const MeshPtr& mesh, const Shape& shape) {
  std::vector<SpecPtr> specs;
  std::vector<int> order(static_cast<std::size_t>(mesh->ndim()));
  std::iota(order.begin(), order.end(), 0);
  do {
    // A permutation of the mesh dims, cut into runs, a run for each of some ascending tensor dims.
    Placements placements(order.size());
    const auto deal = [&](const auto& self, std::size_t at, int tensor_dim) -> void {
      if (at == order.size()) {
        ShardOrder shard_order;
        for (int d = 0; d < shape.size(); ++d) {
          DimShardOrder entry{d, {}};
          for (const int m : order)
            if (placements[static_cast<std::size_t>(m)].dim == d) entry.mesh_dims.push_back(m);
          if (!entry.mesh_dims.empty()) shard_order.push_back(entry);
        }
        specs.push_back(std::make_shared<const DTensorSpec>(mesh, placements, shape, shard_order));
        return;
      }
      for (int d = tensor_dim; d < shape.size(); ++d)
        for (std::size_t end = at + 1; end <= order.size(); ++end) {
          for (std::size_t i = at; i < end; ++i)
            placements[static_cast<std::size_t>(order[i])] = Placement::shard(d);
          self(self, end, d + 1);
        }
    };
    deal(deal, 0, 0);
  } while (std::next_permutation(order.begin(), order.end()));
  return specs;
}

/// From each to the next and back to the first: the input comes back.
void chain(const std::vector<SpecPtr>& specs, const RedistributeOptions& options = {}) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const SpecPtr& next = specs[(i + 1) % specs.size()];
    const PlanPtr plan = plan_redistribute(specs[i], next, options);
    ASSERT_NO_THROW(test::simulate_plan(*plan)) << plan->to_string();
  }
}

TEST(AllOrders, ChainBackToTheInput) {
  const MeshPtr mesh = make_mesh({2, 2, 2});
  const std::pair<Shape, std::size_t> spaces[] = {
      {Shape{16, 8}, 24}, {Shape{17, 5}, 24}, {Shape{8, 16, 4}, 60}, {Shape{33, 8, 4, 1}, 120}};
  for (const auto& [shape, count] : spaces) {
    const std::vector<SpecPtr> specs = all_sharded_layouts(mesh, shape);
    EXPECT_EQ(specs.size(), count) << meshloom::to_string(shape);
    chain(specs);
  }
}

TEST(AllOrders, ChainOnFiveMeshDims) {
  std::vector<SpecPtr> specs = all_sharded_layouts(make_mesh({2, 2, 2, 2, 2}), {8, 8, 8});
  EXPECT_EQ(specs.size(), 2520u);
  std::mt19937 random(31);
  std::shuffle(specs.begin(), specs.end(), random);
  specs.resize(25);
  chain(specs);
}

std::vector<SpecPtr> all_placements(const MeshPtr& mesh, const Shape& shape,
                                    const std::vector<std::string>& texts) {
  std::vector<SpecPtr> specs;
  for (const std::string& outer : texts)
    for (const std::string& inner : texts) specs.push_back(make_spec(mesh, {outer, inner}, shape));
  return specs;
}

TEST(AllOrders, EveryPlacementToEveryOther) {
  const MeshPtr mesh = make_mesh({4, 2});
  RedistributeOptions greedy, unit;
  greedy.planner = PlannerKind::kGreedy;
  unit.cost_model = CostModel::kUnit;
  for (const Shape& shape : {Shape{16, 24}, Shape{7, 3}})
    for (const SpecPtr& from : all_placements(mesh, shape, {"R", "S(0)", "S(1)", "P"}))
      for (const SpecPtr& to : all_placements(mesh, shape, {"R", "S(0)", "S(1)"}))
        for (const RedistributeOptions& options : {RedistributeOptions{}, greedy, unit})
          ASSERT_NO_THROW(test::simulate_plan(*plan_redistribute(from, to, options)));
}

TEST(AllOrders, ADetourIsNeverCheaper) {
  const MeshPtr mesh = make_mesh({2, 2});
  for (const Shape& shape : {Shape{16, 8}, Shape{13, 2, 13}})
    for (const int element_size : {4, 1 << 18}) {
      RedistributeOptions options;
      options.element_size = element_size;
      std::vector<std::string> texts{"R"};
      std::vector<SpecPtr> specs;
      for (int d = 0; d < shape.size(); ++d) {
        texts.push_back("S(" + std::to_string(d) + ")");
        specs.push_back(make_spec(mesh, {texts.back(), texts.back()}, shape, {{d, {1, 0}}}));
      }
      for (const SpecPtr& spec : all_placements(mesh, shape, texts)) specs.push_back(spec);
      std::vector<std::vector<double>> cost;
      for (const SpecPtr& from : specs) {
        std::vector<double>& row = cost.emplace_back();
        for (const SpecPtr& to : specs) row.push_back(plan_redistribute(from, to, options)->cost);
      }
      for (std::size_t a = 0; a < specs.size(); ++a)
        for (std::size_t b = 0; b < specs.size(); ++b)
          for (std::size_t c = 0; c < specs.size(); ++c)
            EXPECT_LE(cost[a][c], (cost[a][b] + cost[b][c]) * (1 + 1e-9))
                << to_string(*specs[a]) << " -> " << to_string(*specs[b]) << " -> "
                << to_string(*specs[c]);
    }
}

}  // namespace
}  // namespace meshloom::planner
