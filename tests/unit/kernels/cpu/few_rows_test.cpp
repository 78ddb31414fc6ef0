// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/few_rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/matmul_table.h"
#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using testing::ForcedTarget;
using testing::HeapWorkspace;
using testing::HostTensor;

struct Operands {
  Operands(std::mt19937& random, DType type, std::int64_t rows, std::int64_t columns,
           std::int64_t depth, bool transposed)
      : m(rows),
        n(columns),
        k(depth),
        dtype(type),
        by_columns(transposed),
        a(dtype, {m, k}, {}, k % 2),
        b(dtype, {k, n}, by_columns ? std::vector<int>{1, 0} : std::vector<int>{}) {
    a.fill_random(random);
    b.fill_random(random);
  }

  /// Of rows [row, row + rows) of a.
  std::vector<float> product(std::int64_t row, std::int64_t rows, int threads) const {
    std::vector<float> y(static_cast<std::size_t>(rows * n), -1.0f);
    const std::int64_t lda = a.view().stride(0);
    const auto* first =
        a.view().as<const std::byte>() + row * lda * static_cast<std::int64_t>(dtype_size(dtype));
    few_rows_product({threads}, dtype,
                     {rows,
                      n,
                      k,
                      {first, lda, false},
                      {b.view().data, by_columns ? k : n, by_columns},
                      y.data(),
                      n});
    return y;
  }
  double exact(std::int64_t i, std::int64_t j) const {
    double sum = 0.0;
    for (std::int64_t p = 0; p < k; ++p) sum += a.at(i * k + p) * b.at(p * n + j);
    return sum;
  }

  std::int64_t m, n, k;
  DType dtype;
  bool by_columns;
  HostTensor a, b;
};

std::vector<DType> dtypes() {
  std::vector<DType> all{DType::kFloat32};
  if (bfloat16_dot_products()) all.push_back(DType::kBFloat16);
  return all;
}

TEST(FewRows, EqualSumsInDoubleAndEachRowAloneOnAnyThreads) {
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const auto size = [&](int most) { return 1 + static_cast<std::int64_t>(random() % most); };
    const DType dtype = dtypes()[static_cast<std::size_t>(i) % dtypes().size()];
    const Operands in(random, dtype, size(kMostFewRows), size(700), size(300), i % 4 < 2);
    SCOPED_TRACE(fmt::format("{} [{}, {}, {}] {}", dtype_name(dtype), in.m, in.n, in.k,
                             in.by_columns ? "by columns" : "by rows"));
    const std::vector<float> y = in.product(0, in.m, 1);
    for (std::int64_t r = 0; r < in.m; ++r)
      for (std::int64_t c = 0; c < in.n; ++c)
        ASSERT_NEAR(y[static_cast<std::size_t>(r * in.n + c)], in.exact(r, c),
                    2e-5 * (1.0 + std::sqrt(static_cast<double>(in.k))))
            << r << " " << c;
    EXPECT_EQ(in.product(0, in.m, 3), y) << "threads";
    for (std::int64_t r = 0; r < in.m; ++r) {
      const std::vector<float> alone = in.product(r, 1, 2);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + r * in.n)) << "row " << r;
    }
  }
}

TEST(FewRows, IsOnEveryInstructionSetTheSameWithinRounding) {
  std::mt19937 random(6);
  const Operands by_rows(random, DType::kFloat32, 3, 200, 100, false);
  const Operands by_columns(random, DType::kFloat32, 3, 200, 100, true);
  for (const std::string& target : available_targets()) {
    const ForcedTarget forced(target);
    for (const Operands* in : {&by_rows, &by_columns}) {
      const std::vector<float> y = in->product(0, 3, 1);
      for (std::int64_t at = 0; at < 600; ++at)
        ASSERT_NEAR(y[static_cast<std::size_t>(at)], in->exact(at / 200, at % 200), 2e-4) << target;
    }
  }
}

TEST(FewRows, TheTableTakesThemWhereTheyGain) {
  Gemm token;
  token.m = 1;
  token.n = token.k = 768;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EXPECT_EQ(choose_matmul_provider(CpuClass::kAvx512Bf16, dtype, token),
              MatmulProvider::kFewRows);
    EXPECT_NE(choose_matmul_provider(CpuClass::kAvx2, dtype, token), MatmulProvider::kFewRows);
  }
  EXPECT_EQ(choose_matmul_provider(CpuClass::kAvx2, DType::kFloat32, token, true),
            MatmulProvider::kFewRows)
      << "sequences that are decoded together";
  Gemm adding = token, tall = token, tiny = token;
  adding.beta = 1.0f;
  tall.m = kMostFewRows + 1;
  tiny.n = tiny.k = 32;
  for (const Gemm& gemm : {adding, tall, tiny}) {
    EXPECT_NE(choose_matmul_provider(CpuClass::kAvx512Bf16, DType::kFloat32, gemm),
              MatmulProvider::kFewRows);
    EXPECT_NE(choose_matmul_provider(CpuClass::kAvx2, DType::kFloat32, gemm, true),
              MatmulProvider::kFewRows);
  }
}

}  // namespace
}  // namespace meshloom::kernels::cpu
