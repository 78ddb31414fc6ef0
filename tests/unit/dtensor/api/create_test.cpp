// SPDX-License-Identifier: Apache-2.0
// distribute_tensor and factories.
#include <gtest/gtest.h>

#include <random>

#include "daemon/dtensor/api/distribute_tensor.h"
#include "daemon/dtensor/api/factories.h"
#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/tensor/ops/elementwise.h"
#include "kernels/base/error.h"
#include "tests/support/random_rows.h"
#include "tests/support/test_context.h"
#include "tests/unit/dtensor/engine_rank.h"
#include "tests/unit/dtensor/global_values.h"

namespace meshloom::dtensor {
namespace {

using test::EngineRank;
using test::error_text;
using test::expect_local;
using test::make_local;
using test::make_spec;
using test::on_engine_mesh;
using test::placements;

/// value_at everywhere on ranks that are a source; else something else.
Tensor whole_tensor(EngineRank& rank, const Shape& shape, bool right) {
  const planner::SpecPtr spec =
      make_spec(rank.mesh, std::vector<const char*>(rank.mesh.coordinates().size(), "R"), shape);
  const Tensor x = make_local(rank.context, *spec, rank.mesh.coordinates());
  return right ? x : meshloom::full(rank.context, shape, -1.0, DType::kFloat32);
}

TEST(DistributeTensor, OneDim) {
  on_engine_mesh({4}, [](EngineRank& rank) {
    for (const Shape& shape : {Shape{12, 3}, Shape{13, 3, 3}, Shape{14, 3, 3}, Shape{2, 2, 2}}) {
      for (int dim = 0; dim < shape.size(); ++dim) {
        const std::string text = fmt::format("S({})", dim);
        for (const int source : {0, 3}) {
          Tensor x = whole_tensor(rank, shape, rank.mesh.rank() == source);
          x.set_requires_grad(true);
          rank.mesh.reset_counters();
          const Tensor y = distribute_tensor(x, rank.engine, placements({text.c_str()}), source);
          EXPECT_EQ(rank.calls("scatter"), 1u);
          EXPECT_EQ(rank.calls(), 1u);
          expect_local(to_local(y), *make_spec(rank.mesh, {text.c_str()}, shape),
                       rank.mesh.coordinates());
          EXPECT_TRUE(y.layout()->local.is_leaf() && y.layout()->local.requires_grad());
        }
        rank.mesh.reset_counters();
        const Tensor own = distribute_tensor(whole_tensor(rank, shape, true), rank.engine,
                                             placements({text.c_str()}), std::nullopt);
        EXPECT_EQ(rank.calls(), 0u);
        expect_local(to_local(own), *make_spec(rank.mesh, {text.c_str()}, shape),
                     rank.mesh.coordinates());
      }
    }
  });
}

TEST(DistributeTensor, MeshesAndShardOrders) {
  on_engine_mesh({2, 3}, [](EngineRank& rank) {
    const Shape shape{9, 5};
    for (const int source : {0, 1}) {
      const bool right = rank.mesh.coordinates() == std::vector<int>{source, source};
      for (const auto& texts : std::vector<std::vector<const char*>>{
               {"S(0)", "S(1)"}, {"S(0)", "S(0)"}, {"R", "S(1)"}, {"S(1)", "R"}, {"R", "R"}}) {
        const Tensor x = whole_tensor(rank, shape, right);
        const Tensor before = whole_tensor(rank, shape, right);
        expect_local(to_local(distribute_tensor(x, rank.engine, placements(texts), source)),
                     *make_spec(rank.mesh, texts, shape), rank.mesh.coordinates());
        EXPECT_EQ(x.to_vector(), before.to_vector()) << "the source tensor was written to";
      }
      const planner::SpecPtr swapped = make_spec(rank.mesh, {"S(0)", "S(0)"}, shape, {{0, {1, 0}}});
      const planner::SpecPtr blocked = make_spec(rank.mesh, {"S(1)", "S(0)"}, shape, {},
                                                 {nullptr, planner::DimOrder::blocked(9, 3, 3, 1)});
      std::mt19937 random(7);
      const planner::SpecPtr by_row = make_spec(
          rank.mesh, {"S(1)", "S(0)"}, shape, {},
          {planner::DimOrder::listed_by_row(5, 0, test::random_rows(random, 5, 2, 9)), nullptr});
      for (const planner::SpecPtr& layout : {swapped, blocked, by_row})
        expect_local(to_local(distribute_tensor(whole_tensor(rank, shape, right), rank.engine,
                                                layout, source)),
                     *layout, rank.mesh.coordinates());
    }
    rank.mesh.reset_counters();
    distribute_tensor(whole_tensor(rank, shape, true), rank.engine, placements({"R", "S(1)"}));
    EXPECT_EQ(rank.calls("scatter"), 1u);
    EXPECT_EQ(rank.calls("broadcast"), 1u);
  });
}

TEST(DistributeTensor, Refusals) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    Tensor leaf = meshloom::zeros(rank.context, {4, 2}, DType::kFloat32);
    leaf.set_requires_grad(true);
    const auto error = [&](const Tensor& x, const std::vector<const char*>& texts, int source = 0) {
      return error_text<InvalidArgument>(
          [&] { distribute_tensor(x, rank.engine, placements(texts), source); });
    };
    EXPECT_NE(error(leaf, {"P"}).find("Partial"), std::string::npos);
    EXPECT_NE(error(leaf, {"R", "R"}).find("2 placements"), std::string::npos);
    EXPECT_NE(error(ops::mul(leaf, 2.0), {"R"}).find("leaf"), std::string::npos);
    EXPECT_NE(error(leaf, {"R"}, 2).find("source rank 2"), std::string::npos);
    const Tensor sharded = distribute_tensor(leaf, rank.engine, placements({"S(0)"}), std::nullopt);
    EXPECT_NE(error(sharded, {"S(1)"}).find("[S(0)]"), std::string::npos);
    EXPECT_EQ(distribute_tensor(sharded, rank.engine, placements({"S(0)"})).impl(), sharded.impl());
    EXPECT_EQ(rank.calls(), 0u);
  });
}

TEST(Factories, LocalShapes) {
  on_engine_mesh({4}, [](EngineRank& rank) {
    const Tensor x = zeros({31, 3}, {rank.context, rank.engine, placements({"S(0)"})});
    EXPECT_EQ(to_local(x).shape(), (Shape{rank.mesh.rank() == 3 ? 7 : 8, 3}));
  });
  on_engine_mesh({2, 2}, [](EngineRank& rank) {
    const Tensor x = ones({31, 3}, {rank.context, rank.engine, placements({"S(0)", "S(1)"})});
    const Shape shapes[] = {{16, 2}, {16, 1}, {15, 2}, {15, 1}};
    EXPECT_EQ(to_local(x).shape(), shapes[rank.mesh.rank()]);
    for (const double v : to_local(x).to_vector()) EXPECT_EQ(v, 1.0);
    const Tensor y = full({5}, 2.5, {rank.context, rank.engine, placements({"R", "S(0)"})});
    for (const double v : to_local(y).to_vector()) EXPECT_EQ(v, 2.5);
    EXPECT_EQ(empty({5, 2}, {rank.context, rank.engine, placements({"R", "R"})}).shape(),
              (Shape{5, 2}));
    EXPECT_THROW(zeros({5}, {rank.context, rank.engine, placements({"R"})}), InvalidArgument);
    EXPECT_THROW(zeros({5}, {rank.context, rank.engine, placements({"R", "P"})}), InvalidArgument);
    EXPECT_THROW(
        rand({5}, {1, 2}, {rank.context, rank.engine, placements({"R", "R"}), DType::kInt64}),
        InvalidArgument);
  });
}

TEST(DistributeTensor, FailsAlikeOnAllRanks) {
  on_engine_mesh({3}, [](EngineRank& rank) {
    const bool odd = rank.mesh.rank() == 2;
    const auto error = [&](const Tensor& x) {
      return error_text<InvalidArgument>(
          [&] { distribute_tensor(x, rank.engine, placements({"S(0)"}), 0); });
    };
    const auto zeros_of = [&](const Shape& shape, DType dtype) {
      return meshloom::zeros(rank.context, shape, dtype);
    };
    for (const Tensor& x : {zeros_of({odd ? 7 : 6, 2}, DType::kFloat32),
                            zeros_of(odd ? Shape{} : Shape{6, 2}, DType::kFloat32),
                            zeros_of({6, 2}, odd ? DType::kFloat64 : DType::kFloat32)}) {
      const std::string text = error(x);
      EXPECT_NE(text.find("distribute_tensor"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
    }
    EXPECT_EQ(rank.calls(), 0u);
    const Tensor x = zeros_of({6, 2}, DType::kFloat32);
    EXPECT_EQ(to_local(distribute_tensor(x, rank.engine, placements({"S(0)"}), 0)).size(0), 2);
  });
}

TEST(DistributeTensor, HasMemoryOfItsOwn) {
  for (const int ranks : {1, 2})
    on_engine_mesh({ranks}, [](EngineRank& rank) {
      const Tensor x = meshloom::zeros(rank.context, {4}, DType::kFloat32);
      for (const std::optional<int> source : {std::optional<int>(0), std::optional<int>()}) {
        for (const char* text : {"R", "S(0)"}) {
          const Tensor y = distribute_tensor(x, rank.engine, placements({text}), source);
          EXPECT_NE(to_local(y).storage(), x.storage()) << text;
        }
      }
    });
}

TEST(Factories, RanksOutsideHoldNothing) {
  const auto sizes = [](const std::vector<int>& ranks, const std::vector<std::int64_t>& rows) {
    on_engine_mesh(
        {static_cast<int>(ranks.size())},
        [&](EngineRank& rank) {
          const Tensor x = zeros({32, 3}, {rank.context, rank.engine, placements({"S(0)"})});
          const auto at = static_cast<std::size_t>(rank.world.rank());
          EXPECT_EQ(to_local(x).numel(), rows[at] * 3);
          EXPECT_EQ(x.shape(), (Shape{32, 3}));
        },
        4, ranks);
  };
  sizes({0, 1, 3}, {11, 11, 0, 10});
  sizes({0, 3}, {16, 0, 0, 16});
}

TEST(Factories, RandomValuesDoNotDependOnTheMesh) {
  const PhiloxStream stream{42, 7};
  const Shape shape{7, 5, 6};
  testing::TestContext context;
  std::vector<double> uniform, normal;
  const Tensor whole = meshloom::empty(context, shape, DType::kFloat32);
  context.backend().fill_uniform(context.kernel_context(), whole.view(), stream, 0, 0.0f, 1.0f);
  uniform = whole.to_vector();
  context.backend().fill_normal(context.kernel_context(), whole.view(), stream, 0, 0.0f, 1.0f);
  normal = whole.to_vector();
  const std::vector<std::pair<std::vector<int>, std::vector<const char*>>> shardings = {
      {{1}, {"R"}},
      {{4}, {"S(0)"}},
      {{3}, {"S(1)"}},
      {{2}, {"S(2)"}},
      {{2, 2}, {"S(0)", "S(0)"}},
      {{2, 3}, {"S(2)", "S(1)"}},
      {{2, 2}, {"R", "S(1)"}}};
  for (const auto& sharded : shardings) {
    on_engine_mesh(sharded.first, [&](EngineRank& rank) {
      const FactoryOptions options{rank.context, rank.engine, placements(sharded.second)};
      EXPECT_EQ(full_tensor(rand(shape, stream, options)).to_vector(), uniform);
      EXPECT_EQ(full_tensor(randn(shape, stream, options)).to_vector(), normal);
    });
  }
}

}  // namespace
}  // namespace meshloom::dtensor
