// SPDX-License-Identifier: Apache-2.0
// Tensors that go from mesh to mesh, sub-meshes among them.
#include "daemon/dtensor/across_meshes.h"

#include <gtest/gtest.h>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/redistribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "kernels/base/error.h"
#include "tests/unit/dtensor/engine_rank.h"
#include "tests/unit/dtensor/global_values.h"

namespace meshloom::dtensor {
namespace {

using planner::MeshLayout;
using test::EngineRank;
using test::error_text;
using test::expect_local;
using test::make_local;
using test::make_spec;
using test::on_engine_mesh;
using test::placements;

/// A mesh of the rank's world with an engine.
struct OtherMesh {
  std::unique_ptr<DeviceMesh> mesh;
  planner::PlanCache plans;
  DistributedEngine engine;

  explicit OtherMesh(std::unique_ptr<DeviceMesh> made)
      : mesh(std::move(made)), engine({*mesh, plans}) {}
  OtherMesh(EngineRank& rank, const MeshLayout& layout, const std::vector<int>& ranks)
      : OtherMesh(std::make_unique<DeviceMesh>(rank.world, layout, ranks)) {}
};

Tensor part(ExecutionContext& context, DeviceMesh& mesh, DistributedEngine& engine,
            const std::vector<const char*>& texts, const Shape& shape) {
  const planner::SpecPtr spec = make_spec(mesh, texts, shape);
  Tensor local = mesh.member() ? make_local(context, *spec, mesh.coordinates())
                               : meshloom::empty(context, {0}, DType::kFloat32);
  local.set_requires_grad(true);
  return from_local(local, engine, placements(texts),
                    {.shape = shape, .strides = contiguous_strides(shape)});
}

/// As a gradient of x: value_at in its gradient's layout.
void feed_values(const Tensor& x, const DeviceMesh& mesh, double factor = 1.0) {
  const planner::SpecPtr spec = gradient_spec(x);
  const Tensor& local = x.layout()->local;
  Tensor grad = meshloom::zeros(local.context(), local.shape(), local.dtype());
  if (mesh.member())
    grad = ops::cast(ops::mul(make_local(local.context(), *spec, mesh.coordinates()), factor),
                     local.dtype());
  const Tensor out = to_local(x);
  autograd::backward(std::span(&out, 1), std::span(&grad, 1));
}

TEST(AcrossMeshes, ALeafThatHoldsItsGradientPartial) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    OtherMesh turned(rank, MeshLayout({{"x", 2}}), {1, 0});
    Tensor local = meshloom::full(rank.context, {3}, 1.0, DType::kFloat32);
    local.set_requires_grad(true);
    const Tensor w = with_layout(local, make_spec(rank.mesh, {"R"}, {3}), rank.engine);
    w.layout()->grad_spec = rank.engine.intern(make_spec(rank.mesh, {"P(sum)"}, {3}));
    const Tensor x = part(rank.context, rank.mesh, rank.engine, {"S(0)"}, {4, 3});
    const Tensor ones = ops::add(ops::mul(x, 0.0), 1.0);
    const Tensor y = to_local(ops::mul(ones, w));
    EXPECT_EQ(planner::to_string(*gradient_spec(w)), "[P(sum)]");
    const Tensor z = to_local(redistribute(w, turned.engine, placements({"R"})));
    for (const Tensor& out : {y, z}) {
      const Tensor grad = meshloom::full(rank.context, out.shape(), 1.0, DType::kFloat32);
      autograd::backward(std::span(&out, 1), std::span(&grad, 1));
    }
    // Four rows of ones, and one use on the other mesh.
    const Tensor total = redistribute_local(
        local.grad(), {gradient_spec(w), make_spec(rank.mesh, {"R"}, {3})}, rank.engine.context());
    EXPECT_EQ(total.to_vector(), (std::vector<double>{5, 5, 5}));
  });
}

TEST(AcrossMeshes, WholeMeshAndItsSubMeshes) {
  on_engine_mesh({2, 3}, [](EngineRank& rank) {
    const Shape shape{7, 5};
    DeviceMesh whole(rank.world, MeshLayout({{"dp", 2}, {"tp", 3}}));
    planner::PlanCache plans;
    DistributedEngine engine({whole, plans});
    OtherMesh rows(whole.sub_mesh({"tp"})), columns(whole.sub_mesh({"dp"})),
        turned(whole.sub_mesh({"tp", "dp"})), flat(whole.flattened({"dp", "tp"}, "all"));
    struct Place {
      DeviceMesh& mesh;
      DistributedEngine& engine;
      std::vector<std::vector<const char*>> layouts;
    };
    const std::vector<std::vector<const char*>> two = {
        {"S(0)", "S(1)"}, {"R", "S(0)"}, {"P", "S(0)"}, {"S(1)", "S(1)"}, {"P", "P"}};
    const Place places[] = {{whole, engine, two},
                            {*rows.mesh, rows.engine, {{"S(0)"}, {"R"}, {"P"}}},
                            {*columns.mesh, columns.engine, {{"S(1)"}, {"P"}}},
                            {*turned.mesh, turned.engine, two},
                            {*flat.mesh, flat.engine, {{"S(0)"}, {"P"}, {"R"}}}};
    for (const Place& a : places)
      for (const Place& b : places)
        for (const auto& from : a.layouts)
          for (const auto& to : b.layouts) {
            if (&a == &b) continue;
            SCOPED_TRACE(fmt::format(
                "{} {} -> {} {}", to_string(*a.mesh.layout()), planner::to_string(placements(from)),
                to_string(*b.mesh.layout()), planner::to_string(placements(to))));
            const Tensor x = part(rank.context, a.mesh, a.engine, from, shape);
            const double factor = test::partial_factor(*x.layout()->spec);
            const Tensor y = redistribute(x, b.engine, placements(to));
            const std::vector<const char*> r(to.size(), "R");
            expect_local(full_tensor(y), *make_spec(b.mesh, r, shape), b.mesh.coordinates(),
                         factor);
            feed_values(y, b.mesh);
            expect_local(x.layout()->local.grad(), *gradient_spec(x), a.mesh.coordinates());
          }
  });
}

TEST(AcrossMeshes, FromASubMeshToAMeshOfItsOwn) {
  on_engine_mesh({4}, [](EngineRank& rank) {
    const Shape shape{5, 3};
    DeviceMesh whole(rank.world, MeshLayout({{"dp", 2}, {"tp", 2}}));
    OtherMesh rows(whole.sub_mesh({"tp"}));
    OtherMesh three(rank, MeshLayout({{"x", 3}}), {3, 0, 2});
    const Tensor x = part(rank.context, *rows.mesh, rows.engine, {"S(0)"}, shape);
    const Tensor y = redistribute(x, three.engine, placements({"S(1)"}));
    if (three.mesh->member())
      expect_local(to_local(y), *make_spec(*three.mesh, {"S(1)"}, shape),
                   three.mesh->coordinates());
    feed_values(y, *three.mesh);
    expect_local(x.layout()->local.grad(), *make_spec(*rows.mesh, {"S(0)"}, shape),
                 rows.mesh->coordinates());
  });
  // A sub-mesh says nothing about ranks that its mesh leaves out.
  on_engine_mesh({2},
                 [](EngineRank& rank) {
                   DeviceMesh pair(rank.world, MeshLayout({{"dp", 1}, {"tp", 2}}), {0, 1});
                   OtherMesh all(rank, MeshLayout({{"x", 3}}), {0, 1, 2});
                   if (!pair.member()) return;
                   OtherMesh rows(pair.sub_mesh({"tp"}));
                   const Tensor x = part(rank.context, *rows.mesh, rows.engine, {"S(0)"}, {4});
                   const std::string text = error_text<InvalidArgument>(
                       [&] { redistribute(x, all.engine, placements({"R"})); });
                   EXPECT_NE(text.find("leaves out"), std::string::npos) << text;
                 },
                 3, {0, 1});
}

TEST(AcrossMeshes, OrdersAndDtypes) {
  on_engine_mesh({2, 2}, [](EngineRank& rank) {
    const Shape shape{7, 3};
    OtherMesh turned(rank, MeshLayout({{"", 2}, {"", 2}}), {3, 1, 0, 2});
    const Tensor x = part(rank.context, rank.mesh, rank.engine, {"S(0)", "R"}, shape);
    const planner::SpecPtr ordered =
        make_spec(*turned.mesh, {"S(0)", "S(0)"}, shape, {{0, {1, 0}}});
    const planner::SpecPtr blocked = make_spec(*turned.mesh, {"R", "S(0)"}, shape, {},
                                               {nullptr, planner::DimOrder::blocked(7, 2, 1, 2)});
    for (const planner::SpecPtr& to : {ordered, blocked}) {
      for (const bool in_flight : {false, true}) {
        const RedistributeDtypes dtypes{DType::kBFloat16, DType::kFloat32};
        const Tensor before = redistribute(x, placements({"R", "R"}));
        Tensor leaf = to_local(before).detach();
        leaf.set_requires_grad(true);
        const Tensor source = from_local(leaf, rank.engine, placements({"R", "R"}));
        const Tensor y = in_flight ? redistribute_async(source, turned.engine, to, dtypes).wait()
                                   : redistribute(source, turned.engine, to, dtypes);
        EXPECT_EQ(y.dtype(), DType::kBFloat16);
        expect_local(to_local(y), *to, turned.mesh->coordinates());
        feed_values(y, *turned.mesh);
        expect_local(leaf.grad(), *make_spec(rank.mesh, {"R", "R"}, shape),
                     rank.mesh.coordinates());
      }
    }
  });
}

TEST(RedistributeInFlight, DtypesAndLayouts) {
  on_engine_mesh({2, 2}, [](EngineRank& rank) {
    const Shape shape{7, 3};
    const planner::SpecPtr to = make_spec(rank.mesh, {"S(0)", "S(0)"}, shape, {{0, {1, 0}}});
    const Tensor x = part(rank.context, rank.mesh, rank.engine, {"S(0)", "S(1)"}, shape);
    const Tensor y = redistribute_async(x, to, {DType::kBFloat16, DType::kBFloat16}).wait();
    EXPECT_EQ(y.dtype(), DType::kBFloat16);
    expect_local(to_local(y), *to, rank.mesh.coordinates());
    feed_values(y, rank.mesh);
    expect_local(x.layout()->local.grad(), *x.layout()->spec, rank.mesh.coordinates());
    // The same layout with another dtype, and nothing at all.
    const Tensor same = redistribute_async(x, x.layout()->spec, {DType::kFloat64}).wait();
    EXPECT_EQ(same.dtype(), DType::kFloat64);
    expect_local(to_local(redistribute_async(x, x.layout()->spec).wait()), *x.layout()->spec,
                 rank.mesh.coordinates());
  });
}

TEST(RedistributeTensor, SettlesNoGradientWhereNoneIsRecorded) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    Tensor local = meshloom::full(rank.context, {3}, 1.0, DType::kFloat32);
    local.set_requires_grad(true);
    const Tensor w = with_layout(local, make_spec(rank.mesh, {"R"}, {3}), rank.engine);
    {
      const NoGradGuard no_grad(rank.context);
      redistribute_async(w, placements({"S(0)"})).wait();
      redistribute(w, placements({"S(0)"}));
    }
    EXPECT_EQ(w.layout()->grad_spec, nullptr);
  });
}

TEST(RedistributeTensor, RefusesDtypesThatHoldNoGradientOrAverage) {
  on_engine_mesh({2}, [](EngineRank& rank) {
    const Tensor x = part(rank.context, rank.mesh, rank.engine, {"S(0)"}, {4});
    const auto error = [&](const RedistributeDtypes& dtypes) {
      return error_text<InvalidArgument>([&] { redistribute(x, placements({"R"}), dtypes); });
    };
    EXPECT_NE(error({DType::kInt64}).find("int64"), std::string::npos);
    EXPECT_NE(error({std::nullopt, DType::kInt64}).find("int64"), std::string::npos);
    {
      const NoGradGuard no_grad(rank.context);
      EXPECT_EQ(redistribute(x, placements({"R"}), {DType::kInt64}).dtype(), DType::kInt64);
    }
    rank.mesh.reset_counters();
    const Tensor counts = from_local(meshloom::full(rank.context, {3}, 2, DType::kInt64),
                                     rank.engine, placements({"P(avg)"}));
    const std::string text = error_text<InvalidArgument>([&] { full_tensor(counts); });
    EXPECT_NE(text.find("redistribute"), std::string::npos) << text;
    EXPECT_NE(text.find("P(avg)"), std::string::npos) << text;
    EXPECT_EQ(rank.calls(), 0u);
  });
}

}  // namespace
}  // namespace meshloom::dtensor
