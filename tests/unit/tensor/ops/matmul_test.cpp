// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/matmul.h"

#include <gtest/gtest.h>

#include <random>

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/grad_check.h"
#include "tests/support/test_context.h"

namespace meshloom::ops {
namespace {

using test::expect_gradients;
using test::random_tensor;

class MatmulTest : public ::testing::Test {
 protected:
  Tensor random(const Shape& shape, DType dtype = DType::kFloat64) {
    return random_tensor(context_, shape, rng_, dtype);
  }

  testing::TestContext context_;
  std::mt19937_64 rng_{37};
};

/// [M,K] x [K,N] by definition.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b,
                            std::size_t m, std::size_t k, std::size_t n) {
  std::vector<double> y(m * n, 0.0);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t l = 0; l < k; ++l) y[i * n + j] += a[i * k + l] * b[l * n + j];
  return y;
}

TEST_F(MatmulTest, ValuesInEveryDtype) {
  const std::pair<DType, double> dtypes[] = {
      {DType::kFloat64, 1e-13}, {DType::kFloat32, 1e-5}, {DType::kBFloat16, 0.04}};
  for (const auto& [dtype, tolerance] : dtypes)
    for (const auto& [m, k, n] : {std::array<std::size_t, 3>{1, 1, 1}, {7, 13, 5}, {33, 65, 17}}) {
      const auto shape = [](std::size_t a, std::size_t b) {
        return Shape{static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)};
      };
      const Tensor a = random(shape(m, k), dtype);
      const Tensor bt = random(shape(n, k), dtype);
      const Tensor b = transpose(bt, 0, 1);
      test::expect_near(matmul(a, b), product(a.to_vector(), b.to_vector(), m, k, n), tolerance,
                        tolerance);
    }
}

TEST_F(MatmulTest, Gradients) {
  const std::pair<Shape, Shape> shapes[] = {{{3, 4}, {4, 5}},
                                            {{2, 3, 4}, {2, 4, 5}},
                                            {{2, 3, 4}, {4, 5}},
                                            {{3, 4}, {2, 4, 5}},
                                            {{4}, {4}},
                                            {{3, 4}, {4}},
                                            {{4}, {4, 5}},
                                            {{4}, {2, 4, 5}},
                                            {{2, 3, 4}, {4}},
                                            {{2, 1, 3, 4}, {3, 4, 2}},
                                            {{1, 2, 3, 4}, {5, 1, 4, 2}}};
  for (const auto& [a, b] : shapes)
    expect_gradients([](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); },
                     {random(a), random(b)});
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return matmul(transpose(in[0], 0, 1), transpose(in[1], 1, 0));
      },
      {random({4, 3}), random({5, 4})});
  expect_gradients([](const std::vector<Tensor>& in) { return bmm(in[0], in[1]); },
                   {random({2, 3, 4}), random({2, 4, 5})});
  for (const Shape& input : {Shape{3, 5}, Shape{5}, Shape{3, 1}})
    expect_gradients([](const std::vector<Tensor>& in) { return addmm(in[0], in[1], in[2]); },
                     {random(input), random({3, 4}), random({4, 5})});
}

TEST_F(MatmulTest, ShapesOfVectorProducts) {
  EXPECT_EQ(matmul(random({4}), random({4})).shape(), Shape{});
  EXPECT_EQ(matmul(random({2, 3, 4}), random({4})).shape(), (Shape{2, 3}));
  EXPECT_EQ(matmul(random({4}), random({2, 4, 5})).shape(), (Shape{2, 5}));
}

TEST_F(MatmulTest, EmptyInnerSizeGivesZeros) {
  EXPECT_EQ(matmul(random({2, 0}, DType::kFloat32), random({0, 3}, DType::kFloat32)).to_vector(),
            std::vector<double>(6, 0.0));
  EXPECT_EQ(matmul(random({0, 2}, DType::kFloat32), random({2, 3}, DType::kFloat32)).shape(),
            (Shape{0, 3}));
}

TEST_F(MatmulTest, LinearGradients) {
  for (const bool in_out : {false, true})
    for (const Activation activation :
         {Activation::kNone, Activation::kGelu, Activation::kGeluTanh}) {
      const LinearOptions options{in_out, activation};
      const Tensor weight = random(in_out ? Shape{4, 6} : Shape{6, 4});
      auto with_bias = [&](const std::vector<Tensor>& in) {
        return linear(in[0], in[1], in[2], options);
      };
      expect_gradients(with_bias, {random({2, 3, 4}), weight, random({6})});
      auto without_bias = [&](const std::vector<Tensor>& in) {
        return linear(transpose(in[0], 0, 1), in[1], {}, options);
      };
      expect_gradients(without_bias, {random({4, 3}), weight.detach()});
      // Parameters that are no leaves take the other path of their gradients.
      auto derived = [&](const std::vector<Tensor>& in) {
        return linear(in[0], mul(in[1], 2.0), mul(in[2], 3.0), options);
      };
      expect_gradients(derived, {random({4}), weight.detach(), random({6})});
    }
}

TEST_F(MatmulTest, LinearKeepsItsSums) {
  for (const bool invariant : {false, true})
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
      const BatchInvariantGuard guard(context_, invariant);
      const Tensor x = random({3, 33}, dtype), weight = random({40, 33}, dtype);
      const Tensor bias = random({40}, dtype);
      const Tensor y = linear(x, weight, bias, {.keep_sums = true});
      EXPECT_EQ(y.dtype(), dtype == DType::kFloat64 ? dtype : DType::kFloat32);
      std::vector<double> expected =
          product(x.to_vector(), transpose(weight, 0, 1).to_vector(), 3, 33, 40);
      const std::vector<double> b = bias.to_vector();
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += b[i % 40];
      test::expect_near(y, expected, 1e-5, 1e-5);
    }
  Tensor weight = random({4, 3});
  weight.set_requires_grad(true);
  EXPECT_THROW(linear(random({2, 3}), weight, {}, {.keep_sums = true}), InternalError);
}

TEST_F(MatmulTest, LinearAddsIntoTheLeavesOverMicroBatches) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Tensor x = random({50, 8}, dtype);
    Tensor weight = random({6, 8}, dtype);
    Tensor bias = random({6}, dtype);
    weight.set_requires_grad(true);
    bias.set_requires_grad(true);
    const Tensor dy = random({50, 6}, dtype);
    for (int i = 0; i < 3; ++i) {
      const Tensor y = linear(x, weight, bias);
      autograd::backward(std::span(&y, 1), std::span(&dy, 1));
    }
    EXPECT_EQ(weight.grad().dtype(), DType::kFloat32);
    std::vector<double> expected =
        product(transpose(dy, 0, 1).to_vector(), x.to_vector(), 6, 50, 8);
    for (double& v : expected) v *= 3;
    test::expect_near(weight.grad(), expected, 1e-4, 1e-5);
    std::vector<double> sums(6, 0.0);
    const std::vector<double> d = dy.to_vector();
    for (std::size_t i = 0; i < d.size(); ++i) sums[i % 6] += 3 * d[i];
    test::expect_near(bias.grad(), sums, 1e-4, 1e-5);
  }
}

TEST_F(MatmulTest, LinearFusesTheActivationBefore) {
  const Tensor x = random({5, 8}, DType::kFloat32);
  const Tensor w = random({3, 8}, DType::kFloat32);
  const Tensor y = linear(x, w, {}, {.input_activation = Activation::kGelu});
  test::expect_near(y, linear(gelu(x, false), w, {}).to_vector(), 1e-6);
}

TEST_F(MatmulTest, ErrorsNameOpAndShapes) {
  auto text = [](auto call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  const std::string mismatch = text([&] { matmul(random({2, 3}), random({4, 5})); });
  EXPECT_NE(mismatch.find("matmul"), std::string::npos);
  EXPECT_NE(mismatch.find("[2, 3]"), std::string::npos);
  EXPECT_NE(text([&] {
              matmul(random({2, 3, 4}), random({3, 4, 5}));
            }).find("matmul"),
            std::string::npos);
  EXPECT_NE(text([&] { matmul(random({}), random({3})); }).find("matmul"), std::string::npos);
  EXPECT_NE(text([&] { bmm(random({2, 3}), random({3, 4})); }).find("bmm"), std::string::npos);
  EXPECT_NE(text([&] {
              addmm(random({4}), random({2, 3}), random({3, 5}));
            }).find("addmm"),
            std::string::npos);
  EXPECT_NE(text([&] {
              linear(random({2, 3}), random({4, 5}), {});
            }).find("linear"),
            std::string::npos);
  EXPECT_NE(text([&] {
              linear(random({2, 5}), random({4, 5}), random({5}));
            }).find("bias"),
            std::string::npos);
}

}  // namespace
}  // namespace meshloom::ops
