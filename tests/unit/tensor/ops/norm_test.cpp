// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/ops/softmax.h"
#include "kernels/base/error.h"
#include "tests/support/grad_check.h"
#include "tests/support/test_context.h"

namespace meshloom::ops {
namespace {

using test::expect_gradients;
using test::random_tensor;

class NormTest : public ::testing::Test {
 protected:
  Tensor random(const Shape& shape, DType dtype = DType::kFloat64) {
    return random_tensor(context_, shape, rng_, dtype, -1.0, 1.5);
  }

  testing::TestContext context_;
  std::mt19937_64 rng_{41};
};

// By the formula, with ops that are checked on their own.
Tensor plain_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor centered = sub(x, mean(x, {-1}, true));
  const Tensor scale = rsqrt(add(mean(mul(centered, centered), {-1}, true), eps));
  return add(mul(mul(centered, scale), weight), bias);
}

Tensor plain_rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return mul(mul(x, rsqrt(add(mean(mul(x, x), {-1}, true), eps))), weight);
}

TEST_F(NormTest, ValuesMatchTheFormula) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kFloat64, 1e-13}, {DType::kFloat32, 1e-5}, {DType::kBFloat16, 0.04}})
    for (const std::int64_t width : {1, 12, 77}) {
      const Tensor x = random({3, 5, width}, dtype), w = random({width}, dtype),
                   b = random({width}, dtype);
      auto wide = [](const Tensor& t) { return cast(t, DType::kFloat64); };
      test::expect_near(layer_norm(x, w, b, 1e-5),
                        plain_layer_norm(wide(x), wide(w), wide(b), 1e-5).to_vector(), tolerance,
                        tolerance);
      test::expect_near(rms_norm(x, w, 1e-6), plain_rms_norm(wide(x), wide(w), 1e-6).to_vector(),
                        tolerance, tolerance);
    }
}

TEST_F(NormTest, Gradients) {
  auto ln = [](const std::vector<Tensor>& in) { return layer_norm(in[0], in[1], in[2], 1e-5f); };
  expect_gradients(ln, {random({2, 3, 7}), random({7}), random({7})});
  auto bare = [](const std::vector<Tensor>& in) { return layer_norm(in[0], {}, {}, 1e-5f); };
  expect_gradients(bare, {random({3, 7})});
  auto strided = [](const std::vector<Tensor>& in) {
    return layer_norm(transpose(in[0], 0, 1), mul(in[1], 2.0), {}, 1e-5f);
  };
  expect_gradients(strided, {random({7, 3}), random({7})});
  auto strided_params = [](const std::vector<Tensor>& in) {
    return layer_norm(in[0], slice(in[1], 0, 0, 14, 2), slice(in[2], 0, 1, 14, 2), 1e-5f);
  };
  expect_gradients(strided_params, {random({3, 7}), random({14}), random({14})});
  auto several = [](const std::vector<Tensor>& in) {
    return layer_norm(in[0], in[1], in[2], 1e-6f, 2);
  };
  expect_gradients(several, {random({4, 3, 5}), random({3, 5}), random({3, 5})});
  auto rms = [](const std::vector<Tensor>& in) { return rms_norm(in[0], in[1], 1e-6f); };
  expect_gradients(rms, {random({2, 3, 7}), random({7})});
}

TEST_F(NormTest, ResidualChainGradients) {
  // Both outputs, and each alone.
  for (const double a : {1.0, 0.0})
    for (const double b : {0.5, 0.0}) {
      if (a == 0.0 && b == 0.0) continue;
      auto mix = [=](const NormedSum& out) {
        if (a == 0.0) return mul(out.sum, b);
        return b == 0.0 ? mul(out.normed, a) : add(mul(out.normed, a), mul(out.sum, b));
      };
      std::vector<Tensor> in{random({2, 3, 7}), random({2, 3, 7})};
      if (a != 0.0) in.insert(in.end(), {random({7}), random({7})});
      const Tensor w = random({7}), bias = random({7});
      auto layer = [&](const std::vector<Tensor>& t) {
        return mix(add_layer_norm(t[0], t[1], a != 0.0 ? t[2] : w, a != 0.0 ? t[3] : bias, 1e-5f));
      };
      expect_gradients(layer, in);
      in.resize(a != 0.0 ? 3 : 2);
      for (Tensor& t : in) t = t.detach();
      auto rms = [&](const std::vector<Tensor>& t) {
        return mix(add_rms_norm(t[0], t[1], a != 0.0 ? t[2] : w, 1e-5f));
      };
      expect_gradients(rms, in);
    }
}

TEST_F(NormTest, ResidualChainEqualsItsParts) {
  const Tensor x = random({4, 9}, DType::kFloat32), r = random({4, 9}, DType::kFloat32);
  const Tensor w = random({9}, DType::kFloat32), b = random({9}, DType::kFloat32);
  const NormedSum chain = add_layer_norm(x, r, w, b, 1e-5f);
  test::expect_near(chain.sum, add(x, r).to_vector(), 0.0);
  test::expect_near(chain.normed, layer_norm(add(x, r), w, b, 1e-5f).to_vector(), 1e-6);
}

TEST_F(NormTest, ParametersAccumulateWhereOnlyOneHoldsAGradient) {
  Tensor w = random({5}, DType::kFloat32), b = random({5}, DType::kFloat32);
  w.set_requires_grad(true);
  b.set_requires_grad(true);
  const Tensor x = random({3, 5}, DType::kFloat32);
  const Tensor dy = full(context_, {3, 5}, 1.0, DType::kFloat32);
  // The weight alone gets a gradient first.
  const Tensor other = mul(w, 2.0);
  const Tensor ones = full(context_, {5}, 1.0, DType::kFloat32);
  autograd::backward(std::span(&other, 1), std::span(&ones, 1));
  const Tensor y = layer_norm(x, w, b, 1e-5f);
  autograd::backward(std::span(&y, 1), std::span(&dy, 1));
  test::expect_near(b.grad(), std::vector<double>(5, 3.0), 1e-6);
  std::vector<double> expected = sum(layer_norm(x, {}, {}, 1e-5f), {0}).to_vector();
  for (double& v : expected) v += 2.0;
  test::expect_near(w.grad(), expected, 1e-5);
}

TEST_F(NormTest, WrongShapesAreNamed) {
  EXPECT_THROW(layer_norm(random({3, 4}), random({5}), {}, 1e-5f), InvalidArgument);
  EXPECT_THROW(layer_norm(random({3, 4}), {}, {}, 1e-5f, 3), InvalidArgument);
  EXPECT_THROW(rms_norm(random({3, 4}), random({4}, DType::kFloat32), 1e-5f), InvalidArgument);
  EXPECT_THROW(add_rms_norm(random({3, 4}), random({4}), random({4}), 1e-5f), InvalidArgument);
  EXPECT_THROW(rms_norm(random({}), {}, 1e-5f), InvalidArgument);
}

class SoftmaxTest : public NormTest {};

TEST_F(SoftmaxTest, ValuesAndGradients) {
  for (const std::int64_t dim : {0, 1, 2, -1, -2}) {
    const Tensor x = mul(random({3, 4, 5}), 3.0);
    const Tensor e = exp(x);
    const Tensor expected = div(e, sum(e, {dim}, true));
    test::expect_near(softmax(x, dim), expected.to_vector(), 1e-12);
    test::expect_near(log_softmax(x, dim), log(expected).to_vector(), 1e-12);
    test::expect_near(softmax(cast(x, DType::kFloat32), dim), expected.to_vector(), 1e-6);
    test::expect_near(softmax(cast(x, DType::kBFloat16), dim), expected.to_vector(), 0.02);
    expect_gradients([=](const std::vector<Tensor>& in) { return softmax(in[0], dim); },
                     {x.detach()});
    expect_gradients([=](const std::vector<Tensor>& in) { return log_softmax(in[0], dim); },
                     {x.detach()});
  }
}

TEST_F(SoftmaxTest, LargeAndMinusInfiniteInputs) {
  const std::vector<float> values{1000, 1001, -INFINITY};
  const Tensor y = softmax(from_values(context_, {1, 3}, values), 1);
  test::expect_near(y, {1 / (1 + M_E), M_E / (1 + M_E), 0.0}, 1e-6);
}

TEST_F(SoftmaxTest, WrongDimIsNamed) {
  EXPECT_THROW(softmax(random({2, 3}), 2), InvalidArgument);
  EXPECT_THROW(log_softmax(random({2, 3}), -3), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::ops
