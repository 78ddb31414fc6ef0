// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "kernels/base/error.h"
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

struct MatmulCase {
  DType dtype = DType::kFloat32, y_dtype = DType::kFloat32;
  std::int64_t batch = 0;  ///< 0: two dims
  std::int64_t m = 1, n = 1, k = 1;
  bool a_transposed = false, b_transposed = false, b_shared = false;
  std::int64_t gap = 0;
  float alpha = 1.0f, beta = 0.0f;
  Epilogue epilogue = Epilogue::kNone;
  bool keep_pre_activation = false;
};

std::string describe(const MatmulCase& c) {
  return fmt::format(
      "{} -> {} batch {} [{}, {}, {}] transposed {} {} shared {} gap {} alpha {} beta {} epilogue "
      "{}",
      dtype_name(c.dtype), dtype_name(c.y_dtype), c.batch, c.m, c.n, c.k, c.a_transposed,
      c.b_transposed, c.b_shared, c.gap, c.alpha, c.beta, static_cast<int>(c.epilogue));
}

Shape batched(std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  return batch == 0 ? Shape{rows, columns} : Shape{batch, rows, columns};
}

TestTensor operand(const MatmulCase& c, std::int64_t batch, std::int64_t rows, std::int64_t columns,
                   bool transposed) {
  std::vector<int> order = batch > 0 ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1};
  if (transposed) std::swap(order[order.size() - 1], order[order.size() - 2]);
  return TestTensor(c.dtype, batched(batch, rows, columns), order, c.gap);
}

double epilogue_of(Epilogue epilogue, double x) {
  if (epilogue == Epilogue::kBiasGelu) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  if (epilogue != Epilogue::kBiasGeluTanh) return x;
  const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

class MatmulProblem {
 public:
  MatmulProblem(const MatmulCase& c, std::mt19937& random)
      : c_(c),
        a_(operand(c, c.batch, c.m, c.k, c.a_transposed)),
        b_(operand(c, c.b_shared ? 0 : c.batch, c.k, c.n, c.b_transposed)),
        start_(c.y_dtype, batched(c.batch, c.m, c.n)),
        bias_(c.dtype, {c.n}) {
    for (const TestTensor* t : {&a_, &b_, &start_, &bias_}) t->fill_random(random);
    for (std::int64_t at = 0; at < start_.numel(); ++at) expected_.push_back(expected(at));
  }

  void check(const KernelContext& context) const {
    const TestTensor y = c_.beta != 0.0f ? start_.copy() : TestTensor(start_.shape(), c_.y_dtype);
    const TestTensor pre(start_.shape(), c_.y_dtype);
    MatmulOptions options;
    options.alpha = c_.alpha;
    options.beta = c_.beta;
    options.epilogue = c_.epilogue;
    if (c_.epilogue != Epilogue::kNone) options.bias = bias_;
    if (c_.keep_pre_activation) options.pre_activation = pre;
    TensorView b = b_;
    if (c_.b_shared && c_.batch > 0) {
      b.shape = {c_.batch, c_.k, c_.n};
      b.strides = {0, b_.view().stride(0), b_.view().stride(1)};
    }
    backend().matmul(context, y, a_, b, options);
    for (std::int64_t at = 0; at < y.numel(); ++at) {
      const auto [want, bound] = expected_[static_cast<std::size_t>(at)];
      if (c_.keep_pre_activation) {
        ASSERT_NEAR(pre.at(at), want, bound) << "pre-activation " << at;
      }
      // A backend activates the sum itself, or what it keeps of it, which is rounded.
      const double of_sum = epilogue_of(c_.epilogue, want);
      const double of_kept = c_.keep_pre_activation ? epilogue_of(c_.epilogue, pre.at(at)) : of_sum;
      const double nearest = std::abs(y.at(at) - of_sum) <= bound ? of_sum : of_kept;
      ASSERT_NEAR(y.at(at), nearest, bound) << "element " << at;
    }
  }

 private:
  /// Before the activation, and how far a result may be from it.
  std::pair<double, double> expected(std::int64_t at) const {
    const std::int64_t batch = at / (c_.m * c_.n), i = at / c_.n % c_.m, j = at % c_.n;
    double sum = 0.0, size = 1.0;
    for (std::int64_t p = 0; p < c_.k; ++p) {
      const double term = a_.at((batch * c_.m + i) * c_.k + p) *
                          b_.at(((c_.b_shared ? 0 : batch) * c_.k + p) * c_.n + j);
      sum += term;
      size += std::abs(term) * 0.05;
    }
    double want = c_.alpha * sum + c_.beta * (c_.beta != 0.0f ? start_.at(at) : 0.0);
    if (c_.epilogue != Epilogue::kNone) want += bias_.at(j);
    const double rounding = c_.y_dtype == DType::kFloat32 ? 1e-5 : tolerance(c_.y_dtype);
    const double sums = c_.dtype == DType::kFloat64 ? 0.0 : 1e-6 * size;
    return {want, rounding * (1.0 + std::abs(want)) + sums};
  }

  MatmulCase c_;
  TestTensor a_, b_, start_, bias_;
  std::vector<std::pair<double, double>> expected_;
};

MatmulCase random_matmul(std::mt19937& random, DType dtype) {
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  const std::int64_t sizes[] = {1, 2, 7, 8, 16, 33, 48};
  const auto size = [&] { return sizes[random() % 7]; };
  const Epilogue epilogues[] = {Epilogue::kNone, Epilogue::kNone, Epilogue::kBias,
                                Epilogue::kBiasGelu, Epilogue::kBiasGeluTanh};
  MatmulCase c;
  c.dtype = dtype;
  c.y_dtype = dtype != DType::kFloat64 && one_in(3) ? DType::kFloat32 : dtype;
  c.batch = static_cast<std::int64_t>(random() % 4);
  c.m = size();
  c.n = size();
  c.k = size();
  c.a_transposed = one_in(2);
  c.b_transposed = one_in(2);
  c.b_shared = one_in(2);
  c.gap = one_in(2) ? 0 : 3;
  c.alpha = one_in(3) ? 0.5f : 1.0f;
  c.epilogue = epilogues[random() % 5];
  c.beta = one_in(c.epilogue == Epilogue::kNone ? 2 : 4) ? 1.0f : 0.0f;
  c.keep_pre_activation = c.epilogue > Epilogue::kBias && one_in(2);
  return c;
}

TEST(Matmul, RandomProblemsInEveryDType) {
  std::mt19937 random(7);
  for (int i = 0; i < 80; ++i) {
    const MatmulCase c = random_matmul(random, kFloatDTypes[static_cast<std::size_t>(i) % 4]);
    SCOPED_TRACE(describe(c));
    const MatmulProblem problem(c, random);
    for_all_settings([&](const KernelContext& context) { problem.check(context); });
    if (HasFatalFailure()) return;
  }
}

TEST(Matmul, LayersOfAModelForwardAndBackward) {
  std::mt19937 random(8);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    MatmulCase forward{.dtype = dtype, .y_dtype = dtype, .m = 130, .n = 96, .k = 64};
    forward.b_transposed = true;
    forward.epilogue = Epilogue::kBiasGeluTanh;
    forward.keep_pre_activation = true;
    const MatmulCase inputs{.dtype = dtype, .y_dtype = dtype, .m = 130, .n = 64, .k = 96};
    MatmulCase weights{.dtype = dtype, .m = 96, .n = 64, .k = 130};
    weights.a_transposed = true;
    weights.beta = 1.0f;
    for (const MatmulCase& c : {forward, inputs, weights}) {
      SCOPED_TRACE(describe(c));
      const MatmulProblem problem(c, random);
      for_all_settings([&](const KernelContext& context) { problem.check(context); });
    }
  }
}

// a is one row shown five times; y is written through its transpose.
TEST(Matmul, TakesExpandedAndTransposedViews) {
  std::mt19937 random(9);
  const TestTensor row(DType::kFloat32, {1, 6}), b(DType::kFloat32, {6, 4});
  row.fill_random(random);
  b.fill_random(random);
  for_all_settings([&](const KernelContext& context) {
    const TestTensor y(DType::kFloat32, {5, 4}, {1, 0});
    TensorView a = row;
    a.shape = {5, 6};
    a.strides = {0, 1};
    backend().matmul(context, y, a, b, {});
    for (std::int64_t at = 0; at < 20; ++at) {
      double sum = 0.0;
      for (std::int64_t p = 0; p < 6; ++p) sum += row.at(p) * b.at(p * 4 + at % 4);
      EXPECT_NEAR(y.at(at), sum, 1e-5);
    }
  });
}

TEST(Matmul, InnerSizeZeroGivesZerosOrKeepsY) {
  const TestTensor a({3, 0}, DType::kFloat32), b({0, 2}, DType::kFloat32);
  const TestTensor bias = tensor_of({1.5, -2.0});
  MatmulOptions adding, biased;
  adding.beta = 1.0f;
  biased.epilogue = Epilogue::kBias;
  biased.bias = bias;
  for_all_settings([&](const KernelContext& context) {
    const TestTensor y({3, 2}, DType::kFloat32);
    y.fill(4.0);
    backend().matmul(context, y, a, b, adding);
    EXPECT_EQ(y.values(), std::vector<double>(6, 4.0));
    backend().matmul(context, y, a, b, {});
    EXPECT_EQ(y.values(), std::vector<double>(6, 0.0));
    backend().matmul(context, y, a, b, biased);
    EXPECT_EQ(y.values(), (std::vector<double>{1.5, -2.0, 1.5, -2.0, 1.5, -2.0}));
  });
}

TEST(Matmul, OfNoRowsWritesNothing) {
  const TestTensor a({0, 4}, DType::kFloat32), b = zeros({4, 2}, DType::kFloat32),
                                               y({0, 2}, DType::kFloat32);
  run_on_device([&](const KernelContext& context) {
    backend().matmul(context, y, a, b, {});
    finish();
  });
}

TEST(Matmul, NanAndInfinityStayInTheirRowsAndColumns) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const TestTensor a({11, 7}, dtype), b({7, 53}, dtype);
    a.fill(1.0);
    b.fill(1.0);
    a.set(4 * 7 + 6, inf);
    b.set(6 * 53 + 52, std::nan(""));
    for_all_settings([&](const KernelContext& context) {
      const TestTensor y({11, 53}, dtype);
      backend().matmul(context, y, a, b, {});
      for (std::int64_t at = 0; at < y.numel(); ++at) {
        const bool nan = at % 53 == 52, infinite = at / 53 == 4;
        if (nan)
          EXPECT_TRUE(std::isnan(y.at(at))) << at;
        else
          EXPECT_EQ(y.at(at), infinite ? inf : 7.0) << at;
      }
    });
  }
}

TEST(Matmul, BatchInvariantRowsHaveTheBitsOfEachAlone) {
  std::mt19937 random(9);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    constexpr std::int64_t kRows = 35;
    const TestTensor a(dtype, {kRows, 40}), b(dtype, {40, 33}), bias(dtype, {33});
    for (const TestTensor* t : {&a, &b, &bias}) t->fill_random(random);
    for_all_settings([&](const KernelContext& context) {
      MatmulOptions options;
      options.batch_invariant = true;
      options.epilogue = Epilogue::kBias;
      options.bias = bias;
      const TestTensor together({kRows, 33}, dtype), alone({kRows, 33}, dtype);
      const TestTensor growing({kRows, 33}, dtype);
      backend().matmul(context, together, a, b, options);
      for (std::int64_t row = 0; row < kRows; ++row)
        backend().matmul(context, rows_of(alone, row, 1), rows_of(a, row, 1), b, options);
      // 1 to 7 rows, then the rest.
      for (std::int64_t row = 0, count = 1; row < kRows; row += count, ++count)
        backend().matmul(context, rows_of(growing, row, std::min(count, kRows - row)),
                         rows_of(a, row, std::min(count, kRows - row)), b, options);
      EXPECT_EQ(together.bytes(), alone.bytes());
      EXPECT_EQ(together.bytes(), growing.bytes());
    });
  }
}

TEST(Matmul, ScalesOfRowsColumnsAndResult) {
  std::mt19937 random(10);
  constexpr std::int64_t kM = 9, kN = 21;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat8E5M2})
    for (const std::int64_t k : {0, 13})
      for (const bool each : {false, true}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(k));
        const TestTensor a(DType::kBFloat16, {kM, k}), b(DType::kBFloat16, {k, kN}, {1, 0});
        const TestTensor rows(DType::kFloat32, {each ? kM : 1}), result(DType::kFloat32, {1});
        const TestTensor columns(DType::kFloat32, {each ? kN : 1}), bias(DType::kFloat32, {kN});
        for (const TestTensor* t : {&a, &b, &rows, &columns, &bias, &result})
          t->fill_random(random);
        MatmulOptions options;
        options.scales = {rows, columns, {}};
        if (each) {
          options.scales.result = result;
          options.epilogue = Epilogue::kBias;
          options.bias = bias;
        }
        std::vector<double> expected;
        for (std::int64_t at = 0; at < kM * kN; ++at) {
          const std::int64_t i = at / kN, j = at % kN;
          double sum = 0.0;
          for (std::int64_t p = 0; p < k; ++p) sum += a.at(i * k + p) * b.at(p * kN + j);
          sum *= rows.at(each ? i : 0) * columns.at(each ? j : 0);
          if (each) sum = (sum + bias.at(j)) * result.at(0);
          expected.push_back(sum);
        }
        for_all_settings([&](const KernelContext& context) {
          const TestTensor y({kM, kN}, dtype);
          backend().matmul(context, y, a, b, options);
          expect_close(y.values(), expected, dtype == DType::kFloat8E5M2 ? 0.125 : tolerance(dtype),
                       dtype == DType::kFloat8E5M2 ? 1e-3 : 1.0);
        });
      }
}

TEST(Matmul, RefusesWhatDoesNotGoWithScales) {
  const TestTensor a = zeros({3, 4}, DType::kFloat32), b = zeros({4, 5}, DType::kFloat32);
  const TestTensor y({3, 5}, DType::kFloat32), factor = zeros({1}, DType::kFloat32);
  const TestTensor two = zeros({2}, DType::kFloat32), half = zeros({5}, DType::kBFloat16);
  const auto refuses = [&](const auto& change) {
    MatmulOptions options;
    options.scales.rows = factor;
    change(options);
    EXPECT_THROW(
        {
          backend().matmul(test_context(), y, a, b, options);
          finish();
        },
        InvalidArgument);
  };
  refuses([](MatmulOptions& o) { o.beta = 1.0f; });
  refuses([](MatmulOptions& o) { o.alpha = 0.5f; });
  refuses([](MatmulOptions& o) { o.batch_invariant = true; });
  refuses([&](MatmulOptions& o) { o.scales.columns = two; });
  refuses([&](MatmulOptions& o) { o.scales.result = two; });
  refuses([&](MatmulOptions& o) {
    o.epilogue = Epilogue::kBias;
    o.bias = half;
  });
}

}  // namespace
}  // namespace meshloom::kernels::test
