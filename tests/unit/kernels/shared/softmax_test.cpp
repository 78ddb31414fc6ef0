// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

std::vector<double> reference(const TestTensor& x, bool log) {
  const std::int64_t n = x.shape().back();
  std::vector<double> out(x.numel());
  for (std::int64_t r = 0; r < x.numel() / n; ++r) {
    double top = -std::numeric_limits<double>::infinity();
    double sum = 0.0;
    for (std::int64_t i = 0; i < n; ++i) top = std::max(top, x.at(r * n + i));
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x.at(r * n + i) - top);
    for (std::int64_t i = 0; i < n; ++i) {
      const double shifted = x.at(r * n + i) - top;
      out[r * n + i] = log ? shifted - std::log(sum) : std::exp(shifted) / sum;
    }
  }
  return out;
}

TEST(Softmax, ForwardInEveryDType) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    for (const std::int64_t columns : {1, 5, 7, 16, 33, 129, 1000, 1001}) {
      // Rows that begin anywhere, and some whose first one does not begin at a vector either.
      const Layout layout = columns == 129 ? Layout::kOddStart : Layout::kDense;
      const TestTensor x = random_tensor({2, 7, columns}, dtype, rng, -30.0, 30.0, layout);
      for (const bool log : {false, true}) {
        const std::vector<double> expected = reference(x, log);
        for_all_settings([&](const KernelContext& context) {
          TestTensor y({2, 7, columns}, dtype, layout);
          backend().softmax(context, y, x, log);
          expect_close(y.values(), expected, 2 * tolerance(dtype), log ? 10.0 : 1e-3);
        });
      }
    }
  }
}

TEST(Softmax, MaskedRowsAndLargeValues) {
  const double inf = std::numeric_limits<double>::infinity();
  TestTensor x({3, 20}, DType::kFloat32);
  for (int i = 0; i < 20; ++i) {
    x.set(i, i < 15 ? 1e30 : -inf);
    x.set(20 + i, i == 3 ? -1e4 : -inf);
    x.set(40 + i, -inf);
  }
  for_all_settings([&](const KernelContext& context) {
    TestTensor y({3, 20}, DType::kFloat32);
    backend().softmax(context, y, x, false);
    for (int i = 0; i < 20; ++i) {
      EXPECT_NEAR(y.at(i), i < 15 ? 1.0 / 15 : 0.0, 1e-7);
      EXPECT_EQ(y.at(20 + i), i == 3 ? 1.0 : 0.0);
      EXPECT_TRUE(std::isnan(y.at(40 + i)));
    }
  });
}

TEST(Softmax, BackwardInEveryDType) {
  Rng rng(2);
  for (const DType dtype : kFloatDTypes) {
    for (const std::int64_t columns : {1, 9, 130}) {
      for (const bool log : {false, true}) {
        const TestTensor x = random_tensor({11, columns}, dtype, rng, -4.0, 4.0);
        const TestTensor dy = random_tensor({11, columns}, dtype, rng);
        TestTensor y({11, columns}, dtype);
        const std::vector<double> y_exact = reference(x, log);
        for (std::int64_t i = 0; i < y.numel(); ++i) y.set(i, y_exact[i]);
        std::vector<double> expected(y.numel());
        for (std::int64_t r = 0; r < 11; ++r) {
          double sum = 0.0;
          for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i)
            sum += log ? dy.at(i) : dy.at(i) * y.at(i);
          for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i)
            expected[i] = log ? dy.at(i) - std::exp(y.at(i)) * sum : y.at(i) * (dy.at(i) - sum);
        }
        for_all_settings([&](const KernelContext& context) {
          TestTensor dx({11, columns}, dtype);
          backend().softmax_backward(context, dx, dy, y, log);
          expect_close(dx.values(), expected, 2 * tolerance(dtype));
        });
      }
    }
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
