// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/grad_check.h"
#include "tests/support/test_context.h"

namespace meshloom::ops {
namespace {

using test::expect_gradients;
using test::random_tensor;

class ReduceTest : public ::testing::Test {
 protected:
  testing::TestContext context_;
  std::mt19937_64 rng_{29};
  const std::vector<Dims> all_dims_{{}, {0}, {1}, {-1}, {0, 2}, {-1, 0, 1}};
};

TEST_F(ReduceTest, Gradients) {
  for (const Dims& dims : all_dims_)
    for (const bool keepdim : {false, true}) {
      const Tensor x = random_tensor(context_, {3, 4, 5}, rng_);
      auto check = [&](auto op) {
        expect_gradients([&](const std::vector<Tensor>& in) { return op(in[0]); }, {x.detach()});
        expect_gradients(
            [&](const std::vector<Tensor>& in) {
              return op(permute(in[0], {2, 0, 1}));
            },
            {x.detach()});
      };
      check([&](const Tensor& t) { return sum(t, dims, keepdim); });
      check([&](const Tensor& t) { return mean(t, dims, keepdim); });
      check([&](const Tensor& t) { return amax(t, dims, keepdim); });
      check([&](const Tensor& t) { return var(t, dims, 1, keepdim); });
      check([&](const Tensor& t) { return var(t, dims, 0, keepdim); });
    }
}

TEST_F(ReduceTest, ShapesAndValues) {
  const Tensor x = random_tensor(context_, {3, 4, 5}, rng_);
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x, {}, true).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(sum(x, {1}).shape(), (Shape{3, 5}));
  EXPECT_EQ(sum(x, {0, -1}, true).shape(), (Shape{1, 4, 1}));
  const std::vector<double> v = x.to_vector();
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t k = 0; k < 5; ++k) {
      double total = 0, most = -10, squares = 0;
      for (std::size_t j = 0; j < 4; ++j) {
        total += v[i * 20 + j * 5 + k];
        most = std::max(most, v[i * 20 + j * 5 + k]);
      }
      for (std::size_t j = 0; j < 4; ++j) squares += std::pow(v[i * 20 + j * 5 + k] - total / 4, 2);
      EXPECT_NEAR(sum(x, {1}).to_vector()[i * 5 + k], total, 1e-12);
      EXPECT_NEAR(mean(x, {1}).to_vector()[i * 5 + k], total / 4, 1e-12);
      EXPECT_EQ(amax(x, {1}).to_vector()[i * 5 + k], most);
      EXPECT_NEAR(var(x, {1}).to_vector()[i * 5 + k], squares / 3, 1e-12);
      EXPECT_NEAR(var(x, {1}, 0).to_vector()[i * 5 + k], squares / 4, 1e-12);
    }
}

TEST_F(ReduceTest, EqualMaximaShareTheGradient) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const std::vector<float> values{1, 5, 5, 2, 5, -3, -3, -4, -8, -3.015625f};
    Tensor x = from_values(context_, {2, 5}, values, dtype);
    x.set_requires_grad(true);
    const Tensor y = amax(x, {1});
    const Tensor dy = full(context_, {2}, 3.0, dtype);
    autograd::backward(std::span(&y, 1), std::span(&dy, 1));
    test::expect_near(x.grad(), {0, 1, 1, 0, 1, 1.5, 1.5, 0, 0, 0}, 1e-6);
  }
}

TEST_F(ReduceTest, LargeSumsStayExactInFloat32) {
  // A plain running float32 sum of 2^25 ones would stop at 2^24.
  const Tensor ones = full(context_, {1}, 1.0, DType::kFloat32);
  EXPECT_EQ(sum(expand(ones, {std::int64_t{1} << 25})).item(), std::pow(2.0, 25));
}

TEST_F(ReduceTest, EmptyAndSingleElements) {
  EXPECT_EQ(sum(zeros(context_, {0, 3}, DType::kFloat32), {0}).to_vector(),
            std::vector<double>(3, 0.0));
  EXPECT_TRUE(std::isnan(mean(zeros(context_, {0}, DType::kFloat32)).item()));
  EXPECT_TRUE(std::isnan(var(zeros(context_, {1}, DType::kFloat32)).item()));
  EXPECT_TRUE(std::isnan(var(zeros(context_, {1}, DType::kFloat32), {0}).item()));
  EXPECT_EQ(var(full(context_, {1}, 3.0, DType::kFloat32), {0}, 0).item(), 0.0);
  EXPECT_THROW(amax(zeros(context_, {0, 3}, DType::kFloat32), {0}), InvalidArgument);
}

TEST_F(ReduceTest, WrongDimsAreNamed) {
  const Tensor x = zeros(context_, {2, 3}, DType::kFloat32);
  EXPECT_THROW(sum(x, {2}), InvalidArgument);
  EXPECT_THROW(mean(x, {-3}), InvalidArgument);
  EXPECT_THROW(sum(x, {0, -2}), InvalidArgument);
  EXPECT_THROW(sum(zeros(context_, {2}, DType::kInt64)), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::ops
