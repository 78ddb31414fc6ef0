// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

Shape reduced_shape(const Shape& shape, unsigned mask) {
  Shape out = shape;
  for (int d = 0; d < shape.size(); ++d)
    if ((mask >> d & 1u) != 0) out[d] = 1;
  return out;
}

// Flat index of the output that element `flat` of x goes to.
std::int64_t output_of(std::int64_t flat, const Shape& x, const Shape& y) {
  std::int64_t index = 0;
  std::int64_t stride = 1;
  for (int d = x.size() - 1; d >= 0; --d) {
    const std::int64_t i = flat % x[d];
    flat /= x[d];
    if (y[d] != 1) index += i * stride;
    stride *= y[d];
  }
  return index;
}

std::vector<double> reference(ReduceOp op, const TestTensor& x, const Shape& y_shape,
                              double correction) {
  std::vector<std::vector<double>> groups(numel(y_shape));
  for (std::int64_t i = 0; i < x.numel(); ++i)
    groups[output_of(i, x.shape(), y_shape)].push_back(x.at(i));
  std::vector<double> out;
  for (const std::vector<double>& group : groups) {
    double sum = 0, top = -std::numeric_limits<double>::infinity(), squares = 0;
    for (const double v : group) {
      sum += v;
      top = std::max(top, v);
    }
    const auto n = static_cast<double>(group.size());
    for (const double v : group) squares += (v - sum / n) * (v - sum / n);
    switch (op) {
      case ReduceOp::kSum: out.push_back(sum); break;
      case ReduceOp::kMean: out.push_back(sum / n); break;
      case ReduceOp::kAmax: out.push_back(top); break;
      case ReduceOp::kVar: out.push_back(squares / (n - correction)); break;
    }
  }
  return out;
}

TEST(Reduce, EverySetOfDims) {
  Rng rng(1);
  const Shape shape{5, 3, 7, 33};
  for (const DType dtype : kFloatDTypes) {
    for (const Layout layout : kAllLayouts) {
      if (layout != Layout::kDense && dtype != DType::kFloat32) continue;
      const TestTensor x = random_tensor(shape, dtype, rng, -1.0, 3.0, layout);
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kAmax, ReduceOp::kVar}) {
        for (unsigned mask = 1; mask < 16; ++mask) {
          SCOPED_TRACE(std::string(dtype_name(dtype)) + " op " +
                       std::to_string(static_cast<int>(op)) + " dims " + std::to_string(mask));
          const Shape out = reduced_shape(shape, mask);
          const std::vector<double> expected = reference(op, x, out, 1.0);
          for_all_settings([&](const KernelContext& context) {
            TestTensor y(out, dtype);
            backend().reduce(context, op, y, x, 1.0);
            expect_close(y.values(), expected, tolerance(dtype));
          });
        }
      }
    }
  }
}

TEST(Reduce, LongSumsStayAccurate) {
  // Added one by one in float32 these would stop growing or lose digits.
  TestTensor x({700001, 1}, DType::kFloat32);
  double expected = 0.0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.set(i, 1000.0 + static_cast<double>(i % 7) * 0.125);
    expected += x.at(i);
  }
  for_all_settings([&](const KernelContext& context) {
    TestTensor y({1, 1}, DType::kFloat32);
    backend().reduce(context, ReduceOp::kSum, y, x, 0.0);
    EXPECT_NEAR(y.at(0) / expected, 1.0, 2e-7);
  });
}

TEST(Reduce, LongColumnSumsStayAccurate) {
  TestTensor x({100003, 5}, DType::kFloat32);
  std::vector<double> expected(5, 0.0);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.set(i, 100.0 + static_cast<double>(i % 11) * 0.25);
    expected[i % 5] += x.at(i);
  }
  for_all_settings([&](const KernelContext& context) {
    TestTensor y({1, 5}, DType::kFloat32);
    backend().reduce(context, ReduceOp::kSum, y, x, 0.0);
    expect_close(y.values(), expected, 2e-7);
  });
}

TEST(Reduce, NanReachesTheMaximum) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Shape& out : {Shape{1, 1}, Shape{1, 70}, Shape{9, 1}}) {
    TestTensor x = zeros({9, 70}, DType::kFloat32);
    x.set(333, std::nan(""));
    for_all_settings([&](const KernelContext& context) {
      TestTensor y(out, DType::kFloat32);
      backend().reduce(context, ReduceOp::kAmax, y, x, 0.0);
      int nans = 0;
      for (const double v : y.values()) nans += std::isnan(v);
      EXPECT_EQ(nans, 1);
    });
  }
  TestTensor lowest({1, 70}, DType::kFloat32);
  for (int i = 0; i < 70; ++i) lowest.set(i, -inf);
  for_all_settings([&](const KernelContext& context) {
    TestTensor y({1, 1}, DType::kFloat32);
    backend().reduce(context, ReduceOp::kAmax, y, lowest, 0.0);
    EXPECT_EQ(y.at(0), -inf);
  });
}

TEST(Reduce, IntegersAndBools) {
  const TestTensor x = zeros({2, 3}, DType::kInt64);
  x.set_int64(0, std::int64_t{1} << 60);
  x.set_int64(1, 1);
  TestTensor y({2, 1}, DType::kInt64);
  backend().reduce(test_context(), ReduceOp::kSum, y, x, 0.0);
  EXPECT_EQ(y.int64_at(0), (std::int64_t{1} << 60) + 1);
  TestTensor flags = zeros({5}, DType::kBool);
  flags.set(1, 1);
  flags.set(4, 1);
  TestTensor count({1}, DType::kInt64);
  backend().reduce(test_context(), ReduceOp::kSum, count, flags, 0.0);
  EXPECT_EQ(count.at(0), 2);
}

TEST(Reduce, OfNothing) {
  const TestTensor x({0, 4}, DType::kFloat32);
  TestTensor y({1, 4}, DType::kFloat32);
  for (int i = 0; i < 4; ++i) y.set(i, 9.0);
  backend().reduce(test_context(), ReduceOp::kSum, y, x, 0.0);
  EXPECT_EQ(y.values(), (std::vector<double>{0, 0, 0, 0}));
}

TEST(SumOfSquares, OverManyTensors) {
  Rng rng(3);
  const TestTensor a = random_tensor({100001}, DType::kFloat32, rng);
  const TestTensor b = random_tensor({0}, DType::kFloat32, rng);
  const TestTensor c = random_tensor({37, 11}, DType::kBFloat16, rng);
  const TestTensor d = random_tensor({3}, DType::kFloat32, rng);
  double expected = 0.0;
  for (const TestTensor* t : {&a, &b, &c, &d})
    for (const double v : t->values()) expected += v * v;
  const std::vector<TensorView> views{a, b, c, d};
  for_all_settings([&](const KernelContext& context) {
    TestTensor out({1}, DType::kFloat32);
    out.set(0, 5.0);
    backend().sum_of_squares(context, out, views, false);
    EXPECT_NEAR(out.at(0) / expected, 1.0, 1e-6);
    out.set(0, 5.0);
    backend().sum_of_squares(context, out, views, true);
    EXPECT_NEAR(out.at(0) / (expected + 5.0), 1.0, 1e-6);
    backend().sum_of_squares(context, out, {}, false);
    EXPECT_EQ(out.at(0), 0.0);
  });
}

TEST(FirstNonfinite, FindsTheFirstView) {
  const auto first = [](const KernelContext& context, const std::vector<TensorView>& views) {
    const TestTensor index({1}, DType::kInt64);
    backend().first_nonfinite(context, index, views);
    return index.at(0);
  };
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloatDTypes) {
    for (const Layout layout : {Layout::kDense, Layout::kPermuted}) {
      TestTensor x = zeros({111, 301}, dtype, layout);
      const TestTensor clean = zeros({5}, dtype);
      for_all_settings([&](const KernelContext& context) {
        EXPECT_EQ(first(context, {x, clean}), -1);
        EXPECT_EQ(first(context, {}), -1);
      });
      for (const double bad : {std::nan(""), inf, -inf}) {
        x.set(30021, bad);
        for_all_settings([&](const KernelContext& context) {
          EXPECT_EQ(first(context, {clean, x, clean}), 1);
          EXPECT_EQ(first(context, {x, x}), 0);
        });
      }
    }
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
