// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

struct Case {
  UnaryOp op;
  double low, high;  // inputs
  double scalar;
  double (*value)(double x, double scalar);
};

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

const std::vector<Case> kCases{
    {UnaryOp::kNeg, -3, 3, 0, [](double x, double) { return -x; }},
    {UnaryOp::kExp, -10, 10, 0, [](double x, double) { return std::exp(x); }},
    {UnaryOp::kLog, 1e-3, 50, 0, [](double x, double) { return std::log(x); }},
    {UnaryOp::kTanh, -5, 5, 0, [](double x, double) { return std::tanh(x); }},
    {UnaryOp::kSqrt, 0.01, 9, 0, [](double x, double) { return std::sqrt(x); }},
    {UnaryOp::kRsqrt, 0.1, 9, 0, [](double x, double) { return 1.0 / std::sqrt(x); }},
    {UnaryOp::kRelu, -3, 3, 0, [](double x, double) { return x > 0 ? x : 0.0; }},
    {UnaryOp::kSigmoid, -20, 20, 0, [](double x, double) { return 1.0 / (1.0 + std::exp(-x)); }},
    {UnaryOp::kSilu, -20, 20, 0, [](double x, double) { return x / (1.0 + std::exp(-x)); }},
    {UnaryOp::kGelu, -6, 6, 0, [](double x, double) { return gelu(x); }},
    {UnaryOp::kGeluTanh, -6, 6, 0, [](double x, double) { return gelu_tanh(x); }},
    {UnaryOp::kPow, 0.1, 3, 2.0, [](double x, double s) { return std::pow(x, s); }},
    {UnaryOp::kPow, 0.1, 3, 3.0, [](double x, double s) { return std::pow(x, s); }},
    {UnaryOp::kPow, 0.1, 3, -1.0, [](double x, double s) { return std::pow(x, s); }},
    {UnaryOp::kPow, 0.1, 3, 0.5, [](double x, double s) { return std::pow(x, s); }},
    {UnaryOp::kPow, 0.1, 3, 1.7, [](double x, double s) { return std::pow(x, s); }},
    {UnaryOp::kPow, 0.1, 3, 0.0, [](double x, double s) { return std::pow(x, s); }},
    {UnaryOp::kAdd, -3, 3, 1.5, [](double x, double s) { return x + s; }},
    {UnaryOp::kMul, -3, 3, -2.5, [](double x, double s) { return x * s; }},
    {UnaryOp::kRsub, -3, 3, 0.75, [](double x, double s) { return s - x; }},
    {UnaryOp::kRdiv, 0.2, 3, 2.0, [](double x, double s) { return s / x; }},
};

std::string trace(const Case& c, DType dtype) {
  return "op " + std::to_string(static_cast<int>(c.op)) + ", scalar " + std::to_string(c.scalar) +
         ", " + dtype_name(dtype);
}

TEST(Unary, ValuesInEveryDTypeAndLayout) {
  Rng rng(1);
  for (const Case& c : kCases) {
    for (const DType dtype : kFloatDTypes) {
      SCOPED_TRACE(trace(c, dtype));
      for (const Layout layout : {Layout::kDense, Layout::kPermuted, Layout::kOddStart}) {
        const TestTensor x = random_tensor({3, 7, 61}, dtype, rng, c.low, c.high, layout);
        std::vector<double> expected = x.values();
        for (double& v : expected) v = c.value(v, c.scalar);
        for_all_settings([&](const KernelContext& context) {
          TestTensor y({3, 7, 61}, dtype);
          backend().unary(context, c.op, y, x, c.scalar);
          expect_close(y.values(), expected, tolerance(dtype), 1e-2);
        });
      }
    }
  }
}

TEST(Unary, GradientsAreFiniteDifferences) {
  Rng rng(2);
  const double h = 1e-6;
  for (const Case& c : kCases) {
    for (const DType dtype : kFloatDTypes) {
      SCOPED_TRACE(trace(c, dtype));
      const TestTensor x = random_tensor({5, 43}, dtype, rng, c.low, c.high);
      const TestTensor dy = random_tensor({5, 43}, dtype, rng);
      TestTensor y({5, 43}, dtype);
      for (std::int64_t i = 0; i < x.numel(); ++i) y.set(i, c.value(x.at(i), c.scalar));
      std::vector<double> expected(x.numel());
      for (std::int64_t i = 0; i < x.numel(); ++i)
        expected[i] =
            dy.at(i) * (c.value(x.at(i) + h, c.scalar) - c.value(x.at(i) - h, c.scalar)) / (2 * h);
      // A difference quotient has about half of double's digits; y comes rounded to its dtype.
      const double relative = std::max(8 * tolerance(dtype), 1e-6);
      for_all_settings([&](const KernelContext& context) {
        TestTensor dx({5, 43}, dtype);
        backend().unary_backward(context, c.op, dx, dy, x, y, c.scalar);
        expect_close(dx.values(), expected, relative, 1.0);
      });
    }
  }
}

TEST(Unary, GradientFromExpandedInput) {
  Rng rng(3);
  const TestTensor x = random_tensor({6, 21}, DType::kFloat32, rng);
  const TestTensor one = random_tensor({1}, DType::kFloat32, rng);
  TensorView dy = one.view();
  dy.shape = {6, 21};
  dy.strides = {0, 0};
  TestTensor dx({6, 21}, DType::kFloat32);
  backend().unary_backward(test_context(), UnaryOp::kMul, dx, dy, x, {}, 3.0);
  for (const double v : dx.values()) EXPECT_FLOAT_EQ(v, 3.0 * one.at(0));
}

TEST(Unary, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity();
  TestTensor x({5}, DType::kFloat32);
  const double values[] = {inf, -inf, std::nan(""), 0.0, -1.0};
  for (int i = 0; i < 5; ++i) x.set(i, values[i]);
  const auto run = [&](const KernelContext& context, UnaryOp op) {
    TestTensor y({5}, DType::kFloat32);
    backend().unary(context, op, y, x, 0.0);
    return y.values();
  };
  for_all_settings([&](const KernelContext& context) {
    const double nan = std::nan("");
    expect_close(run(context, UnaryOp::kExp), {inf, 0.0, nan, 1.0, std::exp(-1.0)}, 1e-6);
    expect_close(run(context, UnaryOp::kLog), {inf, nan, nan, -inf, nan}, 1e-6);
    expect_close(run(context, UnaryOp::kTanh), {1.0, -1.0, nan, 0.0, std::tanh(-1.0)}, 1e-6);
    expect_close(run(context, UnaryOp::kSigmoid), {1.0, 0.0, nan, 0.5, 1 / (1 + M_E)}, 1e-6);
    expect_close(run(context, UnaryOp::kRelu), {inf, 0.0, nan, 0.0, 0.0}, 1e-6);
  });
}

TEST(Unary, Integers) {
  TestTensor x({3}, DType::kInt64);
  for (int i = 0; i < 3; ++i) x.set(i, i + 1);
  TestTensor y({3}, DType::kInt64);
  backend().unary(test_context(), UnaryOp::kMul, y, x, 4.0);
  EXPECT_EQ(y.values(), (std::vector<double>{4, 8, 12}));
}

}  // namespace
}  // namespace meshloom::kernels::test
