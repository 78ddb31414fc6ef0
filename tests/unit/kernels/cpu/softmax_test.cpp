// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernels/cpu/kernel_test.h"

namespace meshloom::kernels::test {
namespace {

std::vector<double> reference(const HostTensor& x, bool log) {
  const std::int64_t n = x.view().shape.back();
  std::vector<double> out(x.numel());
  for (std::int64_t r = 0; r < x.numel() / n; ++r) {
    double top = -std::numeric_limits<double>::infinity();
    double sum = 0.0;
    for (std::int64_t i = 0; i < n; ++i) top = std::max(top, x.get(r * n + i));
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x.get(r * n + i) - top);
    for (std::int64_t i = 0; i < n; ++i) {
      const double shifted = x.get(r * n + i) - top;
      out[r * n + i] = log ? shifted - std::log(sum) : std::exp(shifted) / sum;
    }
  }
  return out;
}

TEST(Softmax, ForwardInEveryDType) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    for (const std::int64_t columns : {1, 5, 16, 33, 1001}) {
      const HostTensor x = random_tensor({2, 7, columns}, dtype, rng, -30.0, 30.0);
      for (const bool log : {false, true}) {
        const std::vector<double> expected = reference(x, log);
        for_all_settings([&](const KernelContext& context) {
          HostTensor y({2, 7, columns}, dtype);
          backend().softmax(context, y, x, log);
          expect_close(y.values(), expected, 2 * tolerance(dtype), log ? 10.0 : 1e-3);
        });
      }
    }
  }
}

TEST(Softmax, MaskedRowsAndLargeValues) {
  const double inf = std::numeric_limits<double>::infinity();
  HostTensor x({3, 20}, DType::kFloat32);
  for (int i = 0; i < 20; ++i) {
    x.set(i, i < 15 ? 1e30 : -inf);
    x.set(20 + i, i == 3 ? -1e4 : -inf);
    x.set(40 + i, -inf);
  }
  for_all_settings([&](const KernelContext& context) {
    HostTensor y({3, 20}, DType::kFloat32);
    backend().softmax(context, y, x, false);
    for (int i = 0; i < 20; ++i) {
      EXPECT_NEAR(y.get(i), i < 15 ? 1.0 / 15 : 0.0, 1e-7);
      EXPECT_EQ(y.get(20 + i), i == 3 ? 1.0 : 0.0);
      EXPECT_TRUE(std::isnan(y.get(40 + i)));
    }
  });
}

TEST(Softmax, BackwardInEveryDType) {
  Rng rng(2);
  for (const DType dtype : kFloatDTypes) {
    for (const std::int64_t columns : {1, 9, 130}) {
      for (const bool log : {false, true}) {
        const HostTensor x = random_tensor({11, columns}, dtype, rng, -4.0, 4.0);
        const HostTensor dy = random_tensor({11, columns}, dtype, rng);
        HostTensor y({11, columns}, dtype);
        const std::vector<double> y_exact = reference(x, log);
        for (std::int64_t i = 0; i < y.numel(); ++i) y.set(i, y_exact[i]);
        std::vector<double> expected(y.numel());
        for (std::int64_t r = 0; r < 11; ++r) {
          double sum = 0.0;
          for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i)
            sum += log ? dy.get(i) : dy.get(i) * y.get(i);
          for (std::int64_t i = r * columns; i < (r + 1) * columns; ++i)
            expected[i] = log ? dy.get(i) - std::exp(y.get(i)) * sum : y.get(i) * (dy.get(i) - sum);
        }
        for_all_settings([&](const KernelContext& context) {
          HostTensor dx({11, columns}, dtype);
          backend().softmax_backward(context, dx, dy, y, log);
          expect_close(dx.values(), expected, 2 * tolerance(dtype));
        });
      }
    }
  }
}

TEST(Softmax, LargeOutputsPastTheCaches) {
  Rng rng(3);
  const HostTensor x = random_tensor({4097, 2053}, DType::kFloat32, rng);
  for_all_settings([&](const KernelContext& context) {
    if (context.threads.count != 2) return;
    HostTensor y({4097, 2053}, DType::kFloat32);
    backend().softmax(context, y, x, false);
    for (const std::int64_t row : {0, 2048, 4096}) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < 2053; ++i) sum += y.get(row * 2053 + i);
      EXPECT_NEAR(sum, 1.0, 1e-5);
    }
  });
}

}  // namespace
}  // namespace meshloom::kernels::test
