// SPDX-License-Identifier: Apache-2.0
// Products of float8 operands with scales: by the library where it takes them, else widened.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/float8_products.h"
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

struct Float8Case {
  std::string name;
  DType a = DType::kFloat8E4M3, b = DType::kFloat8E4M3, y = DType::kFloat32;
  std::int64_t m = 24, n = 48, k = 64;
  bool by_row = false, by_column = false, with_bias = false;
  bool b_dense_columns = true;
};

TestTensor factors(std::int64_t count, double first) {
  TestTensor tensor({count}, DType::kFloat32);
  for (std::int64_t i = 0; i < count; ++i)
    tensor.set(i, first + 0.125 * static_cast<double>(i % 5));
  return tensor;
}

class CudaFloat8 : public ::testing::TestWithParam<Float8Case> {};

TEST_P(CudaFloat8, ProductsMatchThoseOfTheNumbersThatTheyHold) {
  const auto* const products = dynamic_cast<const Float8Products*>(&backend());
  ASSERT_NE(products, nullptr);
  ASSERT_TRUE(products->takes_float8());
  const Float8Case& c = GetParam();
  Rng rng(5);
  const TestTensor a = random_tensor({c.m, c.k}, c.a, rng);
  const TestTensor b(c.b, {c.k, c.n},
                     c.b_dense_columns ? std::vector<int>{1, 0} : std::vector<int>{});
  for (std::int64_t i = 0; i < b.numel(); ++i)
    b.set(i, static_cast<double>(i * 29 % 17) * 0.25 - 2.0);
  const TestTensor rows = factors(c.by_row ? c.m : 1, 0.5), bias = factors(c.n, -1.0);
  const TestTensor columns = factors(c.by_column ? c.n : 1, 0.25), result = factors(1, 2.0);
  MatmulOptions options;
  options.scales = {rows, columns, result};
  if (c.with_bias) {
    options.epilogue = Epilogue::kBias;
    options.bias = bias;
  }
  const TestTensor y({c.m, c.n}, c.y);
  backend().matmul(test_context(), y, a, b, options);
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) {
      double sum = 0.0;
      for (std::int64_t p = 0; p < c.k; ++p) sum += a.at(i * c.k + p) * b.at(p * c.n + j);
      sum *= rows.at(c.by_row ? i : 0) * columns.at(c.by_column ? j : 0);
      const double want = (sum + (c.with_bias ? bias.at(j) : 0.0)) * 2.0;
      ASSERT_NEAR(y.at(i * c.n + j), want, tolerance(c.y) * (4.0 + std::abs(want)))
          << "row " << i << " column " << j;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Of, CudaFloat8,
    ::testing::Values(
        Float8Case{.name = "OneScaleEach"},
        Float8Case{.name = "ABiasInBfloat16", .y = DType::kBFloat16, .with_bias = true},
        Float8Case{.name = "ScalesOfRowsAndColumns", .by_row = true, .by_column = true},
        Float8Case{.name = "TheOtherFormat", .b = DType::kFloat8E5M2},
        Float8Case{.name = "AnOddInnerSize", .k = 37},
        Float8Case{.name = "RowsOfB", .b_dense_columns = false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshloom::kernels::test
