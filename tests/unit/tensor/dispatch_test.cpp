// SPDX-License-Identifier: Apache-2.0
// What an op costs beside its kernel. Prints nanoseconds; the limits are far above what is measured
// on any machine that is not overloaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"

namespace meshloom {
namespace {

/// The best of several rounds, in nanoseconds per call.
template <typename Fn>
double nanoseconds(Fn&& fn) {
  constexpr int kCalls = 2000;
  double best = 1e18;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) fn();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / kCalls);
  }
  return best;
}

TEST(Dispatch, CostsAreSmall) {
  ExecutionContext context;
  Tensor x = full(context, {16}, 1.0, DType::kFloat32);
  const auto allocate = nanoseconds([&] { context.allocator().allocate(4096).reset(); });
  const auto kernel = nanoseconds([&] {
    context.backend().binary(context.kernel_context(), kernels::BinaryOp::kAdd, x.view(), x.view(),
                             x.view());
  });
  const auto plain = nanoseconds([&] { ops::add(x, x); });
  x.set_requires_grad(true);
  const auto recorded = nanoseconds([&] { ops::add(x, x); });
  const auto view = nanoseconds([&] { ops::transpose(ops::reshape(x, {4, 4}), 0, 1); }) / 2;
  Tensor scalar = full(context, {1}, 1.0, DType::kFloat32);
  scalar.set_requires_grad(true);
  const auto backward = nanoseconds([&] {
                          Tensor y = scalar;
                          for (int i = 0; i < 10; ++i) y = ops::mul(y, 2.0);
                          autograd::backward(y);
                        }) /
                        10;
  std::printf(
      "allocate and free %.0f ns, add kernel %.0f ns, add %.0f ns, recorded add %.0f ns, recorded "
      "view %.0f ns, mul forward and backward %.0f ns\n",
      allocate, kernel, plain, recorded, view, backward);
  EXPECT_LT(allocate, 10e3);
  EXPECT_LT(recorded - kernel, 20e3);
  EXPECT_LT(backward, 40e3);
}

}  // namespace
}  // namespace meshloom
