// SPDX-License-Identifier: Apache-2.0
// Ranks that a mesh leaves out: they run the same program on tensors without elements.
#include <gtest/gtest.h>

#include "daemon/dtensor/api/equal.h"
#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/redistribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/embedding.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/norm.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/ops/softmax.h"
#include "tests/support/tensor_elements.h"
#include "tests/unit/dtensor/engine_rank.h"
#include "tests/unit/dtensor/global_values.h"

namespace meshloom::dtensor {
namespace {

using test::EngineRank;
using test::make_local;
using test::make_spec;
using test::on_engine_mesh;
using test::placements;

/// This rank's part of value_at; nothing where it is outside.
Tensor part(EngineRank& rank, const char* placement, const Shape& shape,
            DType dtype = DType::kFloat32) {
  const planner::SpecPtr spec = make_spec(rank.mesh, {placement}, shape);
  Tensor local = rank.mesh.member()
                     ? make_local(rank.context, *spec, rank.mesh.coordinates(), dtype)
                     : meshloom::empty(rank.context, {0}, dtype);
  if (dtype_is_floating(dtype)) local.set_requires_grad(true);
  return from_local(local, rank.engine, placements({placement}),
                    {.shape = shape, .strides = contiguous_strides(shape)});
}

void feed_ones(const Tensor& local) {
  const Tensor ones = meshloom::full(local.context(), local.shape(), 1.0, local.dtype());
  autograd::backward(std::span(&local, 1), std::span(&ones, 1));
}

// behaviours.md 5.3, sub-mesh {0, 2} of more ranks: add, sum, split, redistribute.
TEST(OutsideTheMesh, OpsAndTheirGradients) {
  on_engine_mesh({2},
                 [](EngineRank& rank) {
                   const bool member = rank.mesh.member();
                   const Tensor x = part(rank, "S(0)", {5, 3});
                   const Tensor sum = ops::sum(ops::mul(ops::add(x, x), x));
                   EXPECT_TRUE(sum.requires_grad());
                   EXPECT_EQ(sum.shape(), Shape{});
                   autograd::backward(sum);
                   const Tensor grad = x.layout()->local.grad();
                   ASSERT_TRUE(grad.defined());
                   EXPECT_EQ(grad.numel(), member ? x.layout()->local.numel() : 0);
                   const std::vector<double> values = x.layout()->local.to_vector();
                   for (std::size_t i = 0; member && i < values.size(); ++i)
                     EXPECT_EQ(grad.to_vector()[i], 4.0 * values[i]);

                   double expected = 0.0;
                   for (std::int64_t i = 0; i < 15; ++i)
                     expected += 2.0 * test::value_at(i) * test::value_at(i);
                   EXPECT_EQ(full_tensor(sum).to_vector(),
                             (std::vector<double>{member ? expected : 0.0}));
                 },
                 8, {0, 2});
}

TEST(OutsideTheMesh, SplitAndJoin) {
  on_engine_mesh({2},
                 [](EngineRank& rank) {
                   const bool member = rank.mesh.member();
                   const Tensor x = part(rank, "S(1)", {5, 3});
                   const std::vector<Tensor> pieces = ops::split(x, 2, 0);
                   ASSERT_EQ(pieces.size(), 3u);
                   EXPECT_EQ(pieces[2].shape(), (Shape{1, 3}));
                   const Tensor joined = ops::cat({pieces[2], ops::mul(pieces[0], 3.0)}, 0);
                   const Tensor y = redistribute(joined, placements({"R"}));
                   EXPECT_EQ(to_local(y).numel(), member ? 9 : 0);
                   feed_ones(to_local(y));
                   const Tensor grad = x.layout()->local.grad();
                   ASSERT_TRUE(grad.defined());
                   if (!member) return;
                   std::vector<double> expected;
                   for (const double row : {3.0, 3.0, 0.0, 0.0, 1.0})
                     expected.insert(expected.end(), static_cast<std::size_t>(grad.size(1)), row);
                   EXPECT_EQ(grad.to_vector(), expected);
                 },
                 4, {0, 2});
}

TEST(OutsideTheMesh, Equal) {
  on_engine_mesh({2},
                 [](EngineRank& rank) {
                   const bool member = rank.mesh.member();
                   const Tensor x = part(rank, "S(0)", {5, 3}), whole = part(rank, "R", {5, 3});
                   EXPECT_TRUE(equal(x, x));
                   EXPECT_TRUE(equal(x, whole));
                   EXPECT_TRUE(equal(redistribute(whole, placements({"P"})), x));
                   EXPECT_EQ(equal(x, ops::mul(x, 2.0)), !member);
                   // One element, on one rank.
                   Tensor last = part(rank, "S(0)", {5, 3});
                   if (rank.mesh.rank() == 1) testing::add_to_element(last.layout()->local, 5, 1.0);
                   EXPECT_EQ(equal(x, last), !member);
                   EXPECT_EQ(equal(x, part(rank, "S(0)", {3, 5})), !member);
                   EXPECT_EQ(equal(x, ops::cast(x, DType::kFloat64)), !member);
                   EXPECT_TRUE(equal(ops::sum(x), ops::sum(whole)));
                 },
                 4, {0, 2});
}

/// dtype and whether a gradient is recorded, of every result of `op`, are those of the members.
void expect_alike(EngineRank& rank, const char* name, const std::vector<Tensor>& results) {
  for (const Tensor& y : results) {
    std::vector<std::int64_t> mine = {static_cast<std::int64_t>(y.dtype()), y.requires_grad()};
    const auto size = static_cast<std::int64_t>(mine.size());
    const Tensor own = from_values(rank.context, {size}, std::span<const std::int64_t>(mine));
    const Tensor first = meshloom::empty(rank.context, {size}, DType::kInt64);
    copy_into(first, own);
    rank.world.broadcast(first.view(), 0)->wait_host();
    EXPECT_EQ(first.to_vector(), own.to_vector())
        << name << " on rank " << rank.world.rank() << ": " << dtype_name(y.dtype());
  }
}

TEST(OutsideTheMesh, ResultsHaveTheDtypesOfTheMembers) {
  on_engine_mesh(
      {2},
      [](EngineRank& rank) {
        const auto see = [&](const char* name, std::vector<Tensor> results) {
          expect_alike(rank, name, results);
        };
        const DType half = DType::kBFloat16;
        const Tensor x = part(rank, "S(0)", {4, 6}, half), w = part(rank, "R", {6, 6}, half);
        const Tensor v = part(rank, "R", {6}, half);
        const Tensor mask = part(rank, "S(0)", {4, 6}, DType::kBool);
        const Tensor ids = ops::cast(ops::mul(part(rank, "S(0)", {4}), 0.0), DType::kInt64);
        see("cast to int", {ids});
        see("where", {ops::where(mask, x, x)});
        see("masked_fill", {ops::masked_fill(x, mask, 1.0)});
        see("cast", {ops::cast(x, DType::kFloat32), ops::cast(x, DType::kFloat64)});
        see("neg", {ops::neg(x), ops::exp(x), ops::triu(x, 0)});
        see("binary", {ops::add(x, x), ops::div(x, x), ops::swiglu(x, x)});
        see("dropout", {ops::dropout(x, 0.5f, {1, 2})});
        see("sum", {ops::sum(x), ops::mean(x, {0}), ops::amax(x, {1}), ops::var(x, {1})});
        see("softmax", {ops::softmax(x, 1), ops::log_softmax(x, 1)});
        see("norm", {ops::layer_norm(x, v, v, 1e-5f), ops::rms_norm(x, v, 1e-5f)});
        const ops::NormedSum sums = ops::add_layer_norm(x, x, v, v, 1e-5f);
        see("add_norm", {sums.normed, sums.sum});
        see("matmul", {ops::matmul(x, w), ops::linear(x, w, v), ops::addmm(v, x, w)});
        see("embedding", {ops::embedding(w, ids)});
        see("cross_entropy", {ops::cross_entropy(x, ids)});
        see("linear_cross_entropy", {ops::linear_cross_entropy(x, w, {}, ids, {})});
        see("shape", {ops::transpose(x, 0, 1), ops::reshape(x, {24}), ops::slice(x, 0, 1, 3),
                      ops::expand(ops::unsqueeze(x, 0), {2, 4, 6}), ops::cat({x, x}, 0),
                      ops::split(x, 3, 0)[1], ops::contiguous(x)});
        const Tensor q = part(rank, "S(1)", {1, 2, 3, 4}, half);
        const ops::SdpaResult attended = ops::scaled_dot_product_attention(q, q, q, {});
        see("attention", {attended.o, attended.lse});
        EXPECT_EQ(attended.lse.dtype(), DType::kFloat32);
      },
      3, {0, 1});
}

TEST(OutsideTheMesh, GradientsComeBackFromAnotherMesh) {
  on_engine_mesh({2},
                 [](EngineRank& rank) {
                   DeviceMesh right(rank.world, planner::MeshLayout({{"", 2}}), {2, 3});
                   planner::PlanCache plans;
                   DistributedEngine other({right, plans});
                   const Tensor x = part(rank, "S(0)", {4, 2}, DType::kBFloat16);
                   const Tensor on_left = ops::cast(ops::mul(x, 2.0), DType::kFloat32);
                   const Tensor on_right = redistribute(on_left, other, placements({"S(1)"}));
                   EXPECT_EQ(on_right.dtype(), DType::kFloat32);
                   const Tensor loss = ops::sum(ops::mul(on_right, 3.0));
                   EXPECT_TRUE(loss.requires_grad());
                   // A scalar of the right mesh, back on the left one: those outside hold a zero.
                   const Tensor back = redistribute(loss, rank.engine, placements({"R"}));
                   double expected = 0.0;
                   for (std::int64_t i = 0; i < 8; ++i) expected += 6.0 * test::value_at(i);
                   EXPECT_EQ(to_local(back).to_vector(),
                             (std::vector<double>{rank.mesh.member() ? expected : 0.0}));
                   autograd::backward(back);
                   const Tensor grad = x.layout()->local.grad();
                   ASSERT_TRUE(grad.defined());
                   EXPECT_EQ(grad.to_vector(),
                             std::vector<double>(rank.mesh.member() ? 4 : 0, 6.0));
                 },
                 4, {0, 1});
}

}  // namespace
}  // namespace meshloom::dtensor
