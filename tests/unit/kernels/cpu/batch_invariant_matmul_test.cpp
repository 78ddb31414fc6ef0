// SPDX-License-Identifier: Apache-2.0
// MatmulOptions::batch_invariant: a row's bits are those of such a product of that row alone.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/matmul/matmul.h"
#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using testing::HeapWorkspace;
using testing::HostTensor;

/// The bytes of y [m, n] = a [m, k] b + bias, all rows at once.
std::vector<std::byte> product(const TensorView& a, const TensorView& b, const TensorView& bias,
                               int threads) {
  HeapWorkspace workspace;
  const HostTensor y(a.dtype, {a.size(0), b.size(1)});
  MatmulOptions options;
  options.batch_invariant = true;
  options.epilogue = Epilogue::kBias;
  options.bias = bias;
  cpu_backend().matmul({{threads}, {}, &workspace}, y.view(), a, b, options);
  EXPECT_LE(workspace.most(), matmul_workspace_bytes({threads}, y.view(), a, b, options));
  const auto* first = y.view().as<const std::byte>();
  return {first, first + static_cast<std::size_t>(y.view().numel()) * dtype_size(a.dtype)};
}

TEST(BatchInvariantMatmul, GivesEveryRowWhatItGetsAlone) {
  std::mt19937 random(9);
  const DType dtypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
  for (int i = 0; i < 80; ++i) {
    const auto size = [&](int most) { return 1 + static_cast<std::int64_t>(random() % most); };
    const DType dtype = dtypes[i % 4];
    const bool by_columns = i % 8 < 4;
    const std::int64_t m = size(21), n = size(400), k = size(500);
    SCOPED_TRACE(fmt::format("{} [{}, {}, {}] {}", dtype_name(dtype), m, n, k,
                             by_columns ? "by columns" : "by rows"));
    HostTensor a(dtype, {m, k}), bias(dtype, {n});
    HostTensor b(dtype, {k, n}, by_columns ? std::vector<int>{1, 0} : std::vector<int>{});
    for (HostTensor* tensor : {&a, &b, &bias}) tensor->fill_random(random);
    const std::vector<std::byte> together = product(a.view(), b.view(), bias.view(), 2);
    const std::size_t row_bytes = static_cast<std::size_t>(n) * dtype_size(dtype);
    for (std::int64_t row = 0; row < m; ++row) {
      const HostTensor one(dtype, {1, k});
      const std::size_t bytes = static_cast<std::size_t>(k) * dtype_size(dtype);
      std::memcpy(one.view().data,
                  a.view().as<const std::byte>() + static_cast<std::size_t>(row) * bytes, bytes);
      const std::vector<std::byte> alone = product(one.view(), b.view(), bias.view(), 2);
      ASSERT_EQ(std::memcmp(alone.data(),
                            together.data() + static_cast<std::size_t>(row) * row_bytes, row_bytes),
                0)
          << "row " << row;
    }
  }
}

}  // namespace
}  // namespace meshloom::kernels::cpu
