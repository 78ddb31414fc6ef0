// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/packed_product.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/simd/targets.h"
#include "tests/unit/kernels/cpu/compute_fixture.h"

namespace meshloom::kernels::cpu {
namespace {

using testing::HeapWorkspace;
using testing::HostTensor;

struct Case {
  std::int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  bool with_bias = false, accumulate = false;
};

std::string describe(const Case& c, const PackedTypes& types) {
  return fmt::format("[{}, {}, {}] {}{}{}{} {} -> {}{}", c.m, c.n, c.k, c.a_transposed ? 'T' : 'N',
                     c.b_transposed ? 'T' : 'N', c.with_bias ? " bias" : "",
                     c.accumulate ? " +" : "", dtype_name(types.operands), dtype_name(types.y),
                     types.tiles ? " by tiles" : "");
}

/// Operands with rows (or columns) that are `padding` elements apart, and what the product gives.
class Product {
 public:
  Product(const Case& c, const PackedTypes& types, std::int64_t padding, std::mt19937& random)
      : c_(c),
        types_(types),
        lda_((c.a_transposed ? c.m : c.k) + padding),
        ldb_((c.b_transposed ? c.k : c.n) + padding),
        a_(types.operands, {c.a_transposed ? c.k : c.m, lda_}),
        b_(types.operands, {c.b_transposed ? c.n : c.k, ldb_}),
        bias_(DType::kFloat32, {c.n}),
        start_(types.y, {c.m, c.n}) {
    for (const HostTensor* tensor : {&a_, &b_, &bias_, &start_}) tensor->fill_random(random);
  }

  /// Rows [begin, begin + rows) of y.
  std::vector<double> run(std::int64_t begin, std::int64_t rows, int threads) const {
    const HostTensor y(types_.y, {rows, c_.n});
    for (std::int64_t i = 0; i < rows * c_.n; ++i) y.set(i, start_.at(begin * c_.n + i));
    const std::int64_t first = c_.a_transposed ? begin : begin * lda_;
    const auto* a = a_.view().as<const std::byte>() +
                    first * static_cast<std::int64_t>(dtype_size(types_.operands));
    const Gemm gemm{rows,
                    c_.n,
                    c_.k,
                    {a, lda_, c_.a_transposed},
                    {b_.view().data, ldb_, c_.b_transposed},
                    y.view().data,
                    c_.n,
                    1.0f,
                    c_.accumulate ? 1.0f : 0.0f};
    HeapWorkspace workspace;
    const PackedPlan plan = plan_packed_product(gemm, types_, {threads});
    const auto scratch = workspace.reserve(plan.scratch_bytes());
    packed_product(gemm, plan, c_.with_bias ? bias_.view().as<float>() : nullptr, scratch.data());
    return y.values();
  }

  /// What y[i, j] is in float64, and the sum of the magnitudes of its terms.
  std::pair<double, double> exact(std::int64_t i, std::int64_t j) const {
    double sum = c_.with_bias ? bias_.at(j) : 0.0;
    if (c_.accumulate) sum += start_.at(i * c_.n + j);
    double magnitude = std::abs(sum);
    for (std::int64_t p = 0; p < c_.k; ++p) {
      const double term = a_.at(c_.a_transposed ? p * lda_ + i : i * lda_ + p) *
                          b_.at(c_.b_transposed ? j * ldb_ + p : p * ldb_ + j);
      sum += term;
      magnitude += std::abs(term);
    }
    return {sum, magnitude};
  }

 private:
  Case c_;
  PackedTypes types_;
  std::int64_t lda_, ldb_;
  HostTensor a_, b_, bias_, start_;
};

std::vector<PackedTypes> all_types() {
  std::vector<PackedTypes> types{{DType::kFloat32, DType::kFloat32}};
  for (const DType y : {DType::kFloat32, DType::kBFloat16}) {
    if (bfloat16_dot_products()) types.push_back({DType::kBFloat16, y});
    // On CPUs without tile registers by their model.
    types.push_back({DType::kBFloat16, y, true});
  }
  return types;
}

Case random_case(std::mt19937& random) {
  const auto size = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random() % most);
  };
  const auto flag = [&] { return random() % 2 == 0; };
  return {size(260), size(330), size(1700), flag(), flag(), flag(), flag()};
}

TEST(PackedProduct, EqualsFloat64OnRandomUnevenShapes) {
  if (!runs_avx512()) GTEST_SKIP() << "needs AVX-512";
  std::mt19937 random(31);
  for (const PackedTypes& types : all_types()) {
    for (int round = 0; round < 24; ++round) {
      const Case c = random_case(random);
      SCOPED_TRACE(describe(c, types));
      const Product product(c, types, static_cast<std::int64_t>(random() % 4), random);
      const std::vector<double> y = product.run(0, c.m, 1 + round % 3);
      const double rounding = types.y == DType::kBFloat16 ? 0x1p-8 : 0.0;
      for (int probe = 0; probe < 400; ++probe) {
        // The corners, where tiles are not full, and anywhere.
        const auto i = static_cast<std::int64_t>(
            probe < 40 ? c.m - 1 - probe % std::min<std::int64_t>(c.m, 10) : random() % c.m);
        const auto j =
            static_cast<std::int64_t>(probe < 40 ? c.n - 1 - probe / 10 % c.n : random() % c.n);
        const auto [want, magnitude] = product.exact(i, j);
        ASSERT_NEAR(y[static_cast<std::size_t>(i * c.n + j)], want,
                    rounding * std::abs(want) + 2e-6 * magnitude)
            << i << ", " << j;
      }
    }
  }
}

TEST(PackedProduct, BitsDependNeitherOnThreadsNorOnTheOtherRows) {
  if (!runs_avx512()) GTEST_SKIP() << "needs AVX-512";
  std::mt19937 random(32);
  for (const PackedTypes& types : all_types())
    for (int round = 0; round < 12; ++round) {
      const Case c = random_case(random);
      SCOPED_TRACE(describe(c, types));
      const Product product(c, types, 0, random);
      const std::vector<double> whole = product.run(0, c.m, 1);
      for (const int threads : {2, 3})
        EXPECT_TRUE(product.run(0, c.m, threads) == whole) << threads;
      const std::int64_t cut = 1 + static_cast<std::int64_t>(random() % c.m);
      std::vector<double> parts = product.run(0, cut, 1);
      if (cut < c.m) {
        const std::vector<double> rest = product.run(cut, c.m - cut, 2);
        parts.insert(parts.end(), rest.begin(), rest.end());
      }
      EXPECT_TRUE(parts == whole) << "cut at row " << cut;
    }
}

// What is not finite stays where it belongs: zeros that fill up pairs and panels spread nothing.
TEST(PackedProduct, KeepsInfinitiesInTheirRowsAndColumns) {
  if (!runs_avx512()) GTEST_SKIP() << "needs AVX-512";
  for (const PackedTypes& types : all_types()) {
    SCOPED_TRACE(describe({11, 53, 7}, types));
    const HostTensor a(types.operands, {11, 7}), b(types.operands, {7, 53}), y(types.y, {11, 53});
    for (std::int64_t i = 0; i < 11 * 7; ++i) a.set(i, 1.0);
    for (std::int64_t i = 0; i < 7 * 53; ++i) b.set(i, 1.0);
    a.set(4 * 7 + 6, INFINITY);
    b.set(6 * 53 + 52, INFINITY);
    const Gemm gemm{11, 53, 7, {a.view().data, 7, false}, {b.view().data, 53, false}, y.view().data,
                    53};
    HeapWorkspace workspace;
    const PackedPlan plan = plan_packed_product(gemm, types, {1});
    packed_product(gemm, plan, nullptr, workspace.reserve(plan.scratch_bytes()).data());
    for (std::int64_t i = 0; i < 11; ++i)
      for (std::int64_t j = 0; j < 53; ++j)
        EXPECT_EQ(y.at(i * 53 + j), i == 4 || j == 52 ? INFINITY : 7.0) << i << ", " << j;
  }
}

TEST(PackedPlan, TilesCoverTheResultAndFeedTheThreads) {
  std::mt19937 random(33);
  for (int round = 0; round < 500; ++round) {
    const auto size = [&](std::int64_t most) {
      return 1 + static_cast<std::int64_t>(random() % most);
    };
    Gemm gemm;
    gemm.m = size(4000);
    gemm.n = size(round % 4 == 0 ? 60000 : 4000);
    gemm.k = size(4000);
    gemm.a = {nullptr, gemm.k, random() % 2 == 0};
    gemm.b = {nullptr, gemm.n, random() % 2 == 0};
    const int threads = 1 + static_cast<int>(random() % 8);
    const std::vector<PackedTypes> types = all_types();
    const PackedPlan plan =
        plan_packed_product(gemm, types[static_cast<std::size_t>(round) % types.size()], {threads});
    const PackedShape& shape = packed_shape(plan.types);
    SCOPED_TRACE(fmt::format("[{}, {}, {}] on {}", gemm.m, gemm.n, gemm.k, threads));
    EXPECT_EQ(plan.tile_rows % shape.rows, 0);
    EXPECT_EQ(plan.tile_columns % shape.columns, 0);
    EXPECT_EQ(plan.part_depth % shape.least_depth, 0);
    EXPECT_GE(plan.row_tiles * plan.tile_rows, gemm.m);
    EXPECT_LT((plan.row_tiles - 1) * plan.tile_rows, gemm.m);
    EXPECT_GE(plan.column_tiles * plan.tile_columns, gemm.n);
    EXPECT_LT((plan.column_tiles - 1) * plan.tile_columns, gemm.n);
    EXPECT_LE(plan.workers, threads);
    if (gemm.m >= 96 * 8 && gemm.n >= 96 * 8 && gemm.k >= 64) {
      EXPECT_EQ(plan.workers, threads);
    }
  }
}

}  // namespace
}  // namespace meshloom::kernels::cpu
