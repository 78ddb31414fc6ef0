// SPDX-License-Identifier: Apache-2.0
// from_local, to_local, full_tensor and redistribute.
#include <gtest/gtest.h>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/redistribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
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

Tensor local_zeros(EngineRank& rank, const Shape& shape) {
  return meshloom::zeros(rank.context, shape, DType::kFloat32);
}

/// This rank's part of value_at in the layout, with a gradient.
Tensor wrapped(EngineRank& rank, const std::vector<const char*>& texts, const Shape& shape,
               bool requires_grad = true) {
  const planner::SpecPtr spec = make_spec(rank.mesh, texts, shape);
  Tensor local = make_local(rank.context, *spec, rank.mesh.coordinates());
  if (requires_grad) local.set_requires_grad(true);
  return from_local(local, rank.engine, placements(texts),
                    {.shape = shape, .strides = contiguous_strides(shape)});
}

void feed_ones(const Tensor& local) {
  const Tensor ones = meshloom::full(local.context(), local.shape(), 1.0, local.dtype());
  autograd::backward(std::span(&local, 1), std::span(&ones, 1));
}

TEST(FromLocal, GlobalShapeAndStrides) {
  on_engine_mesh({2, 2, 2}, [](EngineRank& rank) {
    const Tensor local = local_zeros(rank, {3, 3, 3});
    const auto shape = [&](const std::vector<const char*>& texts) {
      return from_local(local, rank.engine, placements(texts)).shape();
    };
    EXPECT_EQ(shape({"S(0)", "S(1)", "S(2)"}), (Shape{6, 6, 6}));
    EXPECT_EQ(shape({"S(0)", "S(0)", "S(2)"}), (Shape{12, 3, 6}));
    EXPECT_EQ(shape({"R", "S(-1)", "R"}), (Shape{3, 3, 6}));
  });
  on_engine_mesh({4}, [](EngineRank& rank) {
    // A local tensor of shape [8, 8, 4] seen as [8, 4, 8].
    const Tensor local = ops::transpose(local_zeros(rank, {8, 8, 4}), 1, 2);
    const Tensor x = from_local(local, rank.engine, placements({"S(1)"}));
    EXPECT_EQ(x.shape(), (Shape{8, 16, 8}));
    EXPECT_EQ(x.strides(), (Strides{8 * 16, 1, 16}));
  });
}

TEST(FromLocal, UnevenNeedsShapeAndStrides) {
  on_engine_mesh({4}, [](EngineRank& rank) {
    const Shape shape{13, 3};
    const Tensor x = wrapped(rank, {"S(0)"}, shape);
    EXPECT_EQ(x.shape(), shape);
    EXPECT_EQ(to_local(x).impl(), x.layout()->local.impl());
    const Tensor local = local_zeros(rank, {4, 3});
    const auto wrap = [&](const FromLocalOptions& options) {
      from_local(local, rank.engine, placements({"S(0)"}), options);
    };
    EXPECT_NE(error_text<InvalidArgument>([&] { wrap({.shape = shape}); }).find("strides"),
              std::string::npos);
    EXPECT_NE(error_text<InvalidArgument>([&] {
                wrap({.strides = Strides{3, 1}});
              }).find("shape"),
              std::string::npos);
    EXPECT_NE(error_text<InvalidArgument>([&] {
                wrap({.shape = Shape{20, 3}, .strides = Strides{3, 1}});
              }).find("[5, 3]"),
              std::string::npos);
    EXPECT_NE(error_text<InvalidArgument>([&] {
                from_local(local, rank.engine, placements({"S(0)", "R"}));
              }).find("2 placements"),
              std::string::npos);
    EXPECT_THROW(from_local(local, rank.engine, placements({"S(2)"})), InvalidArgument);
    EXPECT_EQ(rank.calls(), 0u);
  });
}

TEST(FromLocal, RunCheckNamesTheRankThatDiffers) {
  on_engine_mesh({4}, [](EngineRank& rank) {
    const auto error = [&](const Tensor& local) {
      return error_text<InvalidArgument>(
          [&] { from_local(local, rank.engine, placements({"R"}), {.run_check = true}); });
    };
    const bool odd = rank.mesh.rank() == 2;
    const Shape shape{4, 4};
    const Tensor dtype =
        meshloom::zeros(rank.context, shape, odd ? DType::kFloat64 : DType::kFloat32);
    Tensor gradient = local_zeros(rank, shape);
    if (odd) gradient.set_requires_grad(true);
    const Tensor dense = local_zeros(rank, shape);
    const Tensor strides = odd ? ops::transpose(dense, 0, 1) : dense;
    for (const Tensor& local : {dtype, gradient, strides, local_zeros(rank, {odd ? 5 : 4, 4})}) {
      EXPECT_NE(error(local).find("rank 2"), std::string::npos) << error(local);
      EXPECT_NO_THROW(from_local(local, rank.engine, placements({"R"})));
    }
  });
}

TEST(FromLocal, RunCheckFailsAlikeOnAllRanks) {
  const auto texts = [](const std::vector<int>& mesh,
                        const std::function<void(EngineRank&, bool odd)>& call) {
    std::vector<std::string> seen(static_cast<std::size_t>(mesh[0]));
    on_engine_mesh(mesh, [&](EngineRank& rank) {
      seen[static_cast<std::size_t>(rank.world.rank())] =
          error_text<InvalidArgument>([&] { call(rank, rank.mesh.rank() == 1); });
      // The mesh serves on.
      EXPECT_NO_THROW(
          from_local(local_zeros(rank, {2}), rank.engine, placements({"R"}), {.run_check = true}));
    });
    for (const std::string& text : seen) EXPECT_EQ(text, seen[0]);
    EXPECT_NE(seen[0].find("from_local"), std::string::npos) << seen[0];
    EXPECT_NE(seen[0].find("rank 1"), std::string::npos) << seen[0];
    return seen[0];
  };
  // S(1) does not fit one dim.
  texts({2}, [](EngineRank& rank, bool odd) {
    from_local(local_zeros(rank, odd ? Shape{4} : Shape{4, 4}), rank.engine, placements({"S(1)"}),
               {.run_check = true});
  });
  // One shard is not what the shape leaves it.
  texts({3}, [](EngineRank& rank, bool odd) {
    from_local(local_zeros(rank, odd ? Shape{5} : Shape{4}), rank.engine, placements({"R"}),
               {.run_check = true, .shape = Shape{4}, .strides = Strides{1}});
  });
  texts({3}, [](EngineRank& rank, bool odd) {
    from_local(local_zeros(rank, {4}), rank.engine, placements({odd ? "P" : "R"}),
               {.run_check = true});
  });
  texts({2}, [](EngineRank& rank, bool odd) {
    from_local(
        local_zeros(rank, {4, 1}), rank.engine, placements({"R"}),
        {.run_check = true, .shape = Shape{4, 1}, .strides = odd ? Strides{1} : Strides{1, 1}});
  });
  const std::string uneven = texts({2}, [](EngineRank& rank, bool odd) {
    from_local(local_zeros(rank, {odd ? 3 : 4}), rank.engine, placements({"S(0)"}),
               {.run_check = true});
  });
  EXPECT_NE(uneven.find("give the shape"), std::string::npos) << uneven;
}

TEST(FromLocal, StridesHaveTheDimsOfTheShape) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    const std::string text = error_text<InvalidArgument>([&] {
      from_local(local_zeros(rank, {2}), rank.engine, placements({"S(0)"}),
                 {.shape = Shape{4}, .strides = Strides{4, 1}});
    });
    EXPECT_NE(text.find("strides [4, 1]"), std::string::npos) << text;
  });
}

TEST(FromLocal, RunCheckGivesReplicasTheFirstValues) {
  on_engine_mesh({2, 2}, [](EngineRank& rank) {
    Tensor local = meshloom::full(rank.context, {3}, rank.mesh.rank(), DType::kFloat32);
    local.set_requires_grad(true);
    rank.mesh.reset_counters();
    const Tensor x = from_local(local, rank.engine, placements({"S(0)", "R"}), {.run_check = true});
    EXPECT_EQ(rank.calls("all_gather"), 1u);
    EXPECT_EQ(rank.calls("broadcast"), 1u);
    const Tensor held = to_local(x);
    EXPECT_EQ(held.to_vector()[0], rank.mesh.rank() / 2 * 2);
    EXPECT_EQ(local.to_vector()[0], rank.mesh.rank());
    feed_ones(held);
    EXPECT_EQ(local.grad().to_vector(), (std::vector<double>{1, 1, 1}));
  });
}

TEST(ToLocal, GradientHints) {
  on_engine_mesh({4}, [](EngineRank& rank) {
    // behaviours.md 4.2: R then to_local(grad P), S -> R then to_local(grad P).
    const Tensor whole = wrapped(rank, {"R"}, {8, 3});
    rank.mesh.reset_counters();
    const Tensor plain = to_local(whole, placements({"P"}));
    EXPECT_EQ(rank.calls(), 0u);
    feed_ones(plain);
    EXPECT_EQ(rank.calls("all_reduce"), 1u);
    EXPECT_EQ(rank.calls(), 1u);
    for (const double g : whole.layout()->local.grad().to_vector()) EXPECT_EQ(g, 4.0);

    const Tensor sharded = wrapped(rank, {"S(0)"}, {8, 3});
    rank.mesh.reset_counters();
    const Tensor gathered = full_tensor(sharded, placements({"P"}));
    EXPECT_EQ(rank.calls("all_gather"), 1u);
    rank.mesh.reset_counters();
    feed_ones(gathered);
    EXPECT_EQ(rank.calls("reduce_scatter"), 1u);
    EXPECT_EQ(rank.calls(), 1u);
    for (const double g : sharded.layout()->local.grad().to_vector()) EXPECT_EQ(g, 4.0);
    EXPECT_THROW(to_local(meshloom::zeros(rank.context, {2}, DType::kFloat32)), InvalidArgument);
    EXPECT_THROW(to_local(sharded, placements({"P", "R"})), InvalidArgument);
  });
}

TEST(FullTensor, RoundTripOfNestedShards) {
  on_engine_mesh({2, 2}, [](EngineRank& rank) {
    for (const Shape& shape : {Shape{10, 5}, Shape{9, 5}, Shape{3, 5}, Shape{1, 3}}) {
      for (const char* second : {"S(0)", "S(1)", "R"}) {
        const Tensor x = wrapped(rank, {"S(0)", second}, shape);
        const planner::SpecPtr whole = make_spec(rank.mesh, {"R", "R"}, shape);
        const Tensor full = full_tensor(x);
        expect_local(full, *whole, rank.mesh.coordinates());
        feed_ones(full);
        for (const double g : x.layout()->local.grad().to_vector()) EXPECT_EQ(g, 1.0);
      }
    }
  });
}

TEST(RedistributeTensor, GoesThroughOpsAndBack) {
  on_engine_mesh({4}, [](EngineRank& rank) {
    const Shape shape{13, 3};
    const Tensor x = wrapped(rank, {"S(0)"}, shape);
    EXPECT_EQ(redistribute(x, placements({"S(0)"})).impl(), x.impl());
    rank.mesh.reset_counters();
    const Tensor y = redistribute(ops::mul(x, 3.0), placements({"S(-1)"}));
    EXPECT_EQ(rank.calls("all_to_all"), 1u);
    EXPECT_EQ(to_string(y.layout()->spec->placement(0)), "S(1)");
    const Tensor z = ops::mul(y, 2.0);
    expect_local(to_local(z), *make_spec(rank.mesh, {"S(1)"}, shape), rank.mesh.coordinates(), 6.0);
    feed_ones(to_local(z));
    for (const double g : x.layout()->local.grad().to_vector()) EXPECT_EQ(g, 6.0);
    EXPECT_EQ(rank.calls("all_to_all"), 2u);
  });
}

TEST(RedistributeTensor, Dtypes) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    const Tensor x = wrapped(rank, {"S(0)"}, {5, 3});
    const Tensor y = redistribute(x, placements({"R"}), {DType::kBFloat16, DType::kBFloat16});
    EXPECT_EQ(y.dtype(), DType::kBFloat16);
    feed_ones(to_local(y));
    for (const double g : x.layout()->local.grad().to_vector()) EXPECT_EQ(g, 1.0);
    // Same layout, other dtype.
    EXPECT_EQ(redistribute(x, placements({"S(0)"}), {DType::kBFloat16, std::nullopt}).dtype(),
              DType::kBFloat16);
  });
}

TEST(RedistributeTensor, InFlight) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    const Shape shape{5, 3};
    const Tensor x = wrapped(rank, {"S(0)"}, shape);
    TensorWork work = redistribute_async(x, placements({"R"}));
    const Tensor other = ops::mul(x, 2.0);
    const Tensor y = work.wait();
    const planner::SpecPtr whole = make_spec(rank.mesh, {"R"}, shape);
    expect_local(to_local(y), *whole, rank.mesh.coordinates());
    feed_ones(to_local(y));
    for (const double g : x.layout()->local.grad().to_vector()) EXPECT_EQ(g, 1.0);
    EXPECT_EQ(other.shape(), shape);
  });
}

TEST(RedistributeTensor, IntoPartialAndRefusals) {
  on_engine_mesh({2, 2}, [](EngineRank& rank) {
    const Shape shape{12, 8};
    const auto go = [&](const std::vector<const char*>& from, const std::vector<const char*>& to) {
      return redistribute(wrapped(rank, from, shape, false), placements(to));
    };
    // behaviours.md 4.2, To-partial on 2x2.
    const planner::SpecPtr whole = make_spec(rank.mesh, {"R", "R"}, shape);
    EXPECT_NO_THROW(go({"P", "S(0)"}, {"P", "S(0)"}));
    for (const auto& [from, to] :
         std::vector<std::pair<std::vector<const char*>, std::vector<const char*>>>{
             {{"P", "S(0)"}, {"P", "S(1)"}}, {{"S(0)", "P"}, {"R", "P"}}})
      expect_local(full_tensor(go(from, to)), *whole, rank.mesh.coordinates(), 3.0);
    rank.mesh.reset_counters();
    for (const auto& [from, to] :
         std::vector<std::pair<std::vector<const char*>, std::vector<const char*>>>{
             {{"S(0)", "R"}, {"S(0)", "P(max)"}},
             {{"S(0)", "S(1)"}, {"R", "P(min)"}},
             {{"P(max)", "R"}, {"P", "R"}},
             {{"P", "R"}, {"P(min)", "R"}}}) {
      const std::string text = error_text<InvalidArgument>([&] { go(from, to); });
      EXPECT_NE(text.find("artial"), std::string::npos) << text;
    }
    EXPECT_THROW(go({"R", "R"}, {"R"}), InvalidArgument);
    EXPECT_THROW(go({"R", "R"}, {"R", "S(2)"}), InvalidArgument);
    EXPECT_EQ(rank.calls(), 0u);
    expect_local(full_tensor(go({"S(0)", "R"}, {"S(1)", "R"})), *whole, rank.mesh.coordinates());
  });
}

TEST(RedistributeTensor, RanksOutsideTheMesh) {
  on_engine_mesh(
      {2},
      [](EngineRank& rank) {
        const Tensor local = local_zeros(rank, rank.mesh.member() ? Shape{3, 2} : Shape{1, 1});
        const Tensor x = from_local(local, rank.engine, placements({"S(0)"}),
                                    {.shape = Shape{6, 2}, .strides = Strides{2, 1}});
        const Tensor y = redistribute(ops::add(x, 1.0), placements({"R"}));
        EXPECT_EQ(y.shape(), (Shape{6, 2}));
        EXPECT_EQ(to_local(y).numel(), rank.mesh.member() ? 12 : 0);
      },
      4, {0, 2});
}

TEST(RedistributeTensor, OntoAnotherMesh) {
  test::on_engine_mesh(
      {2, 2},
      [](EngineRank& rank) {
        const Shape shape{7, 5};
        DeviceMesh line(rank.world, planner::MeshLayout({{"", 3}}), {4, 2, 0});
        planner::PlanCache plans;
        DistributedEngine other({line, plans});
        const planner::SpecPtr from = make_spec(rank.mesh, {"P", "S(1)"}, shape);
        Tensor local = rank.mesh.member() ? make_local(rank.context, *from, rank.mesh.coordinates())
                                          : local_zeros(rank, {0});
        local.set_requires_grad(true);
        const Tensor x = from_local(local, rank.engine, placements({"P", "S(1)"}),
                                    {.shape = shape, .strides = contiguous_strides(shape)});
        const Tensor y = redistribute(x, other, placements({"S(0)"}));
        EXPECT_EQ(y.layout()->engine, &other);
        const planner::SpecPtr to = make_spec(line, {"S(0)"}, shape);
        if (line.member()) expect_local(to_local(y), *to, line.coordinates(), 3.0);
        feed_ones(to_local(y));
        if (!rank.mesh.member()) return;
        for (const double g : local.grad().to_vector()) EXPECT_EQ(g, 1.0);
      },
      5, {0, 1, 2, 3});
}

}  // namespace
}  // namespace meshloom::dtensor
