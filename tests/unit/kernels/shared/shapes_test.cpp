// SPDX-License-Identifier: Apache-2.0
// Sizes around those of vectors, blocks and lists; tensors of many dims; results in place of
// inputs.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

const std::vector<std::int64_t> kCounts{0, 1, 3, 7, 8, 33, 129, 256, 257, 1000};

TEST(Shapes, VectorsOfAnyLengthThatBeginAnywhere) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes)
    for (const std::int64_t count : kCounts)
      for (const Layout layout : {Layout::kDense, Layout::kOddStart}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(count));
        const TestTensor a = random_tensor({count}, dtype, rng, -2.0, 2.0, layout);
        const TestTensor b = random_tensor({count}, dtype, rng, -2.0, 2.0);
        std::vector<double> sums(a.values()), products(a.values()), doubled(a.values());
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(i);
          sums[at] += b.at(i);
          products[at] *= b.at(i) / (1.0 + std::exp(-a.at(i)));
          doubled[at] *= 2.0;
        }
        for_all_settings([&](const KernelContext& context) {
          const TestTensor sum({count}, dtype, layout), product({count}, dtype, layout),
              twice({count}, dtype), same({count}, dtype), filled({count}, dtype, layout);
          backend().binary(context, BinaryOp::kAdd, sum, a, b);
          backend().swiglu(context, product, a, b);
          backend().unary(context, UnaryOp::kMul, twice, a, 2.0);
          backend().copy(context, same, a);
          backend().fill(context, filled, 0.25);
          expect_close(sum.values(), sums, tolerance(dtype));
          expect_close(product.values(), products, tolerance(dtype));
          EXPECT_EQ(twice.values(), doubled);
          EXPECT_EQ(same.values(), a.values());
          EXPECT_EQ(filled.values(), std::vector<double>(static_cast<std::size_t>(count), 0.25));
        });
      }
}

TEST(Shapes, AsManyDimsAsThereMayBe) {
  Rng rng(2);
  const Shape shape{2, 1, 3, 2, 1, 2, 3, 5}, columns{1, 1, 3, 1, 1, 2, 1, 5};
  const TestTensor a = random_tensor(shape, DType::kFloat32, rng, -2.0, 2.0, Layout::kPermuted);
  const TestTensor b = random_tensor(columns, DType::kFloat32, rng);
  std::vector<double> expected(a.values()), sums(30, 0.0);
  const auto column_of = [](std::int64_t flat) {
    return flat / 60 % 3 * 10 + flat / 15 % 2 * 5 + flat % 5;
  };
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    expected[static_cast<std::size_t>(i)] += b.at(column_of(i));
    sums[static_cast<std::size_t>(column_of(i))] += a.at(i);
  }
  for_all_settings([&](const KernelContext& context) {
    TensorView expanded = b;
    for (const int dim : {0, 3, 6}) {
      expanded.shape[dim] = shape[dim];
      expanded.strides[dim] = 0;
    }
    const TestTensor y(shape, DType::kFloat32, Layout::kPadded), same(shape, DType::kFloat32),
        sum(columns, DType::kFloat32);
    backend().binary(context, BinaryOp::kAdd, y, a, expanded);
    backend().copy(context, same, a);
    backend().reduce(context, ReduceOp::kSum, sum, a, 0.0);
    expect_close(y.values(), expected, 2e-6);
    EXPECT_EQ(same.values(), a.values());
    expect_close(sum.values(), sums, 2e-6);
  });
}

TEST(Shapes, ResultsInPlaceOfInputs) {
  Rng rng(3);
  for (const DType dtype : kFloatDTypes) {
    const TestTensor x = random_tensor({5, 33}, dtype, rng);
    const TestTensor dy = random_tensor({5, 33}, dtype, rng);
    for_all_settings([&](const KernelContext& context) {
      const TestTensor apart({5, 33}, dtype), place = x.copy();
      backend().unary(context, UnaryOp::kGeluTanh, apart, x, 0.0);
      backend().unary(context, UnaryOp::kGeluTanh, place, place, 0.0);
      EXPECT_EQ(place.bytes(), apart.bytes());
      const TestTensor dx({5, 33}, dtype), gradient = dy.copy();
      backend().unary_backward(context, UnaryOp::kSilu, dx, dy, x, apart, 0.0);
      backend().unary_backward(context, UnaryOp::kSilu, gradient, gradient, x, apart, 0.0);
      EXPECT_EQ(gradient.bytes(), dx.bytes());
      const TestTensor sum({5, 33}, dtype), second = dy.copy();
      backend().binary(context, BinaryOp::kSub, sum, x, dy);
      backend().binary(context, BinaryOp::kSub, second, x, second);
      EXPECT_EQ(second.bytes(), sum.bytes());
    });
  }
}

// More views than fit into the parameters of one kernel.
TEST(Shapes, ListsOfManyViews) {
  Rng rng(4);
  std::vector<TestTensor> all;
  double squares = 0.0;
  for (int i = 0; i < 700; ++i) {
    all.push_back(random_tensor({i % 5}, i % 3 == 0 ? DType::kBFloat16 : DType::kFloat32, rng));
    for (const double value : all.back().values()) squares += value * value;
  }
  run_on_device([&](const KernelContext& context) {
    const auto views = [&] { return std::vector<TensorView>(all.begin(), all.end()); };
    const TestTensor out({1}, DType::kFloat32), index({1}, DType::kInt64);
    backend().sum_of_squares(context, out, views(), false);
    EXPECT_NEAR(out.at(0) / squares, 1.0, 1e-6);
    backend().first_nonfinite(context, index, views());
    EXPECT_EQ(index.at(0), -1.0);
    all[649].set(2, std::numeric_limits<double>::infinity());
    backend().first_nonfinite(context, index, views());
    EXPECT_EQ(index.at(0), 649.0);
    all[14].set(3, std::nan(""));
    backend().first_nonfinite(context, index, views());
    EXPECT_EQ(index.at(0), 14.0);
  });
}

TEST(Shapes, StepsOverManyParameters) {
  Rng rng(5);
  const TestTensor lr = tensor_of({0.1}), step = tensor_of({1}, DType::kInt64);
  run_on_device([&](const KernelContext& context) {
    std::vector<TestTensor> masters, grads, firsts, seconds;
    std::vector<OptimizerTensor> tensors;
    std::vector<std::vector<double>> before;
    for (int i = 0; i < 500; ++i) {
      const Shape shape{1 + i % 3};
      masters.push_back(random_tensor(shape, DType::kFloat32, rng));
      grads.push_back(random_tensor(shape, DType::kFloat32, rng));
      firsts.push_back(zeros(shape, DType::kFloat32));
      seconds.push_back(zeros(shape, DType::kFloat32));
      before.push_back(masters.back().values());
      tensors.push_back({masters.back(), grads.back(), firsts.back(), seconds.back(), {}, 0.0f});
    }
    backend().adam_step(context, tensors, {.lr = lr, .step = step}, {});
    // The first step of Adam is the sign of the gradient, lr long.
    for (std::size_t i = 0; i < masters.size(); ++i)
      for (std::int64_t k = 0; k < masters[i].numel(); ++k)
        ASSERT_NEAR(masters[i].at(k),
                    before[i][static_cast<std::size_t>(k)] - std::copysign(0.1, grads[i].at(k)),
                    1e-5)
            << i;
  });
}

}  // namespace
}  // namespace meshloom::kernels::test
