// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "tests/support/grad_check.h"
#include "tests/support/test_context.h"

namespace meshloom::ops {
namespace {

using test::expect_gradients;
using test::random_tensor;

struct UnaryCase {
  const char* name;
  std::function<Tensor(const Tensor&)> op;
  std::function<double(double)> reference;
  double low = -2.0;
  double high = 2.0;
};

void PrintTo(const UnaryCase& c, std::ostream* os) { *os << c.name; }

const double kRootTwoOverPi = std::sqrt(2.0 / M_PI);

class UnaryOps : public ::testing::TestWithParam<UnaryCase> {
 protected:
  testing::TestContext context_;
  std::mt19937_64 rng_{17};
};

TEST_P(UnaryOps, ValuesMatchTheFormula) {
  const UnaryCase& c = GetParam();
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{37}, Shape{3, 5, 7}, Shape{0, 4}}) {
    const Tensor x = random_tensor(context_, shape, rng_, DType::kFloat64, c.low, c.high);
    std::vector<double> expected = x.to_vector();
    for (double& v : expected) v = c.reference(v);
    test::expect_near(c.op(x), expected, 1e-12, 1e-12);
    const std::vector<double> rounded = cast(x, DType::kFloat32).to_vector();
    for (std::size_t i = 0; i < rounded.size(); ++i) expected[i] = c.reference(rounded[i]);
    test::expect_near(c.op(cast(x, DType::kFloat32)), expected, 2e-6, 2e-6);
  }
}

TEST_P(UnaryOps, GradientMatchesDifferences) {
  const UnaryCase& c = GetParam();
  auto op = [&](const std::vector<Tensor>& in) { return c.op(in[0]); };
  auto strided = [&](const std::vector<Tensor>& in) {
    return c.op(transpose(slice(in[0], 1, 0, 100, 2), 0, 1));
  };
  const Tensor x = random_tensor(context_, {5, 9}, rng_, DType::kFloat64, c.low, c.high);
  expect_gradients(op, {x});
  expect_gradients(strided, {x.detach()});
}

INSTANTIATE_TEST_SUITE_P(
    All, UnaryOps,
    ::testing::Values(
        UnaryCase{"neg", [](const Tensor& x) { return neg(x); }, [](double v) { return -v; }},
        UnaryCase{"exp", [](const Tensor& x) { return exp(x); },
                  [](double v) { return std::exp(v); }},
        UnaryCase{"log", [](const Tensor& x) { return log(x); },
                  [](double v) { return std::log(v); }, 0.2, 3.0},
        UnaryCase{"tanh", [](const Tensor& x) { return tanh(x); },
                  [](double v) { return std::tanh(v); }},
        UnaryCase{"sqrt", [](const Tensor& x) { return sqrt(x); },
                  [](double v) { return std::sqrt(v); }, 0.2, 3.0},
        UnaryCase{"rsqrt", [](const Tensor& x) { return rsqrt(x); },
                  [](double v) { return 1.0 / std::sqrt(v); }, 0.2, 3.0},
        UnaryCase{"pow3", [](const Tensor& x) { return pow(x, 3.0); },
                  [](double v) { return std::pow(v, 3.0); }},
        UnaryCase{"pow2", [](const Tensor& x) { return pow(x, 2.0); },
                  [](double v) { return v * v; }},
        UnaryCase{"pow_half", [](const Tensor& x) { return pow(x, -0.5); },
                  [](double v) { return std::pow(v, -0.5); }, 0.2, 3.0},
        UnaryCase{"relu", [](const Tensor& x) { return relu(x); },
                  [](double v) { return v > 0 ? v : 0.0; }},
        UnaryCase{"sigmoid", [](const Tensor& x) { return sigmoid(x); },
                  [](double v) { return 1.0 / (1.0 + std::exp(-v)); }},
        UnaryCase{"silu", [](const Tensor& x) { return silu(x); },
                  [](double v) { return v / (1.0 + std::exp(-v)); }},
        UnaryCase{"gelu", [](const Tensor& x) { return gelu(x, false); },
                  [](double v) { return 0.5 * v * (1.0 + std::erf(v / std::sqrt(2.0))); }},
        UnaryCase{"gelu_tanh", [](const Tensor& x) { return gelu(x, true); },
                  [](double v) {
                    return 0.5 * v * (1.0 + std::tanh(kRootTwoOverPi * (v + 0.044715 * v * v * v)));
                  }},
        UnaryCase{"add_value", [](const Tensor& x) { return add(x, 0.7); },
                  [](double v) { return v + 0.7; }},
        UnaryCase{"sub_value", [](const Tensor& x) { return sub(x, 0.7); },
                  [](double v) { return v - 0.7; }},
        UnaryCase{"value_sub", [](const Tensor& x) { return sub(0.7, x); },
                  [](double v) { return 0.7 - v; }},
        UnaryCase{"mul_value", [](const Tensor& x) { return mul(x, -1.3); },
                  [](double v) { return v * -1.3; }},
        UnaryCase{"div_value", [](const Tensor& x) { return div(x, 1.7); },
                  [](double v) { return v / 1.7; }},
        UnaryCase{"value_div", [](const Tensor& x) { return div(1.7, x); },
                  [](double v) { return 1.7 / v; }, 0.3, 2.0}),
    [](const auto& test) { return test.param.name; });

class PointwiseOps : public ::testing::Test {
 protected:
  Tensor mask(const Shape& shape) {
    return cast(test::random_ids(context_, shape, rng_, 2), DType::kBool);
  }
  Tensor random(const Shape& shape, double low = -1.0, double high = 1.0) {
    return random_tensor(context_, shape, rng_, DType::kFloat64, low, high);
  }

  testing::TestContext context_;
  std::mt19937_64 rng_{23};
};

TEST_F(PointwiseOps, BinaryGradientsWithBroadcasting) {
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  const std::pair<Shape, Shape> shapes[] = {
      {{3, 5}, {3, 5}}, {{3, 1, 4}, {5, 1}}, {{4}, {2, 3, 4}}, {{}, {3}}, {{2, 1}, {1, 7}}};
  for (Binary op : {static_cast<Binary>(add), static_cast<Binary>(sub), static_cast<Binary>(mul),
                    static_cast<Binary>(div)})
    for (const auto& [a, b] : shapes)
      expect_gradients([op](const std::vector<Tensor>& in) { return op(in[0], in[1]); },
                       {random(a), random(b, 0.4, 1.5)});
}

TEST_F(PointwiseOps, BinaryValuesOfStridedInputs) {
  const Tensor a = random({4, 6});
  const Tensor b = random({6, 4}, 0.5, 1.0);
  const Tensor y = div(a, transpose(b, 0, 1));
  const std::vector<double> va = a.to_vector(), vb = b.to_vector();
  std::vector<double> expected;
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 6; ++j) expected.push_back(va[i * 6 + j] / vb[j * 4 + i]);
  test::expect_near(y, expected, 1e-15, 1e-15);
  expect_gradients([](const std::vector<Tensor>& in) { return mul(in[0], transpose(in[1], 0, 1)); },
                   {a, b});
}

TEST_F(PointwiseOps, OneTensorOnBothSides) {
  expect_gradients([](const std::vector<Tensor>& in) { return mul(in[0], in[0]); },
                   {random({3, 4})});
}

TEST_F(PointwiseOps, OnlyOneSideNeedsAGradient) {
  for (const int wanted : {0, 1}) {
    Tensor a = full(context_, {2}, 3.0, DType::kFloat32);
    Tensor b = full(context_, {2}, 4.0, DType::kFloat32);
    (wanted == 0 ? a : b).set_requires_grad(true);
    const Tensor y = div(mul(a, b), b);
    const Tensor dy = full(context_, {2}, 1.0, DType::kFloat32);
    autograd::backward(std::span(&y, 1), std::span(&dy, 1));
    EXPECT_EQ(a.grad().defined(), wanted == 0);
    test::expect_near((wanted == 0 ? a : b).grad(), std::vector<double>(2, wanted == 0 ? 1.0 : 0.0),
                      1e-6);
  }
}

TEST_F(PointwiseOps, WhereAndMaskedFill) {
  const Tensor m = mask({3, 1, 4});
  auto pick = [&](const std::vector<Tensor>& in) { return where(m, in[0], in[1]); };
  expect_gradients(pick, {random({5, 4}), random({3, 5, 1})});
  auto fill = [&](const std::vector<Tensor>& in) { return masked_fill(in[0], m, -7.5); };
  const Tensor x = random({3, 5, 4});
  expect_gradients(fill, {x});
  const std::vector<double> vm = m.to_vector(), vx = x.to_vector();
  const std::vector<double> y = fill({x}).to_vector();
  for (std::size_t i = 0; i < y.size(); ++i) {
    const bool masked = vm[i / 20 * 4 + i % 4] != 0.0;
    EXPECT_EQ(y[i], masked ? -7.5 : vx[i]);
  }
  EXPECT_THROW(masked_fill(random({4}), m, 0.0), InvalidArgument);
  EXPECT_THROW(where(x, x, x), InvalidArgument);
}

TEST_F(PointwiseOps, Triangles) {
  for (const std::int64_t diagonal : {-2, 0, 1}) {
    const Tensor x = random({2, 4, 5});
    const std::vector<double> v = x.to_vector();
    const std::vector<double> upper = triu(x, diagonal).to_vector();
    const std::vector<double> lower = tril(x, diagonal).to_vector();
    for (std::int64_t i = 0; i < 40; ++i) {
      const std::int64_t above = i % 5 - i / 5 % 4;
      EXPECT_EQ(upper[static_cast<std::size_t>(i)],
                above >= diagonal ? v[static_cast<std::size_t>(i)] : 0.0);
      EXPECT_EQ(lower[static_cast<std::size_t>(i)],
                above <= diagonal ? v[static_cast<std::size_t>(i)] : 0.0);
    }
    expect_gradients([=](const std::vector<Tensor>& in) { return tril(in[0], diagonal); }, {x});
    expect_gradients(
        [=](const std::vector<Tensor>& in) { return triu(transpose(in[0], 1, 2), diagonal); },
        {x.detach()});
  }
}

TEST_F(PointwiseOps, Swiglu) {
  expect_gradients([](const std::vector<Tensor>& in) { return swiglu(in[0], in[1]); },
                   {random({3, 7}), random({3, 7})});
  const Tensor a = random({3, 7}), b = random({3, 7});
  test::expect_near(swiglu(a, b), mul(silu(a), b).to_vector(), 1e-12);
  const Tensor packed = random({3, 14});
  const std::vector<Tensor> halves = split(packed, 7, 1);
  test::expect_near(swiglu(halves[0], halves[1]), mul(silu(halves[0]), halves[1]).to_vector(),
                    1e-12);
}

TEST_F(PointwiseOps, DropoutKeepsByPosition) {
  const PhiloxStream stream{42, 7};
  const Tensor x = full(context_, {40, 50}, 1.0, DType::kFloat32);
  const Tensor y = dropout(x, 0.25f, stream);
  double kept = 0;
  for (double v : y.to_vector()) {
    ASSERT_TRUE(v == 0.0 || std::abs(v - 1.0 / 0.75) < 1e-6);
    kept += v != 0.0;
  }
  EXPECT_NEAR(kept / 2000, 0.75, 0.05);
  // A shard that starts at row 10 draws what the whole tensor draws there.
  const Tensor shard = dropout(slice(x, 0, 10, 15), 0.25f, stream, 10 * 50);
  EXPECT_EQ(shard.to_vector(), slice(y, 0, 10, 15).to_vector());
  expect_gradients(
      [&](const std::vector<Tensor>& in) {
        return dropout(transpose(in[0], 0, 1), 0.5f, stream, 3);
      },
      {random({4, 5})});
  EXPECT_EQ(dropout(x, 0.0f, stream).impl(), x.impl());
  EXPECT_THROW(dropout(x, 1.0f, stream), InvalidArgument);
}

TEST_F(PointwiseOps, CastGivesTheGradientBackInItsDtype) {
  expect_gradients([](const std::vector<Tensor>& in) { return cast(in[0], DType::kFloat64); },
                   {random({3})});
  Tensor x = full(context_, {2}, 1.0, DType::kFloat32);
  x.set_requires_grad(true);
  const Tensor y = cast(mul(x, 1.0), DType::kBFloat16);
  EXPECT_EQ(y.dtype(), DType::kBFloat16);
  const Tensor dy = full(context_, {2}, 2.0, DType::kBFloat16);
  autograd::backward(std::span(&y, 1), std::span(&dy, 1));
  EXPECT_EQ(x.grad().to_vector(), std::vector<double>(2, 2.0));
}

TEST_F(PointwiseOps, ErrorsNameOpAndShapes) {
  const Tensor a = zeros(context_, {2, 3}, DType::kFloat32);
  const Tensor b = zeros(context_, {4}, DType::kFloat32);
  try {
    add(a, b);
    FAIL();
  } catch (const InvalidArgument& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("add"), std::string::npos);
    EXPECT_NE(text.find("[2, 3]"), std::string::npos);
    EXPECT_NE(text.find("[4]"), std::string::npos);
  }
  EXPECT_THROW(add(a, zeros(context_, {2, 3}, DType::kFloat64)), InvalidArgument);
  EXPECT_THROW(exp(zeros(context_, {2}, DType::kInt64)), InvalidArgument);
  EXPECT_THROW(triu(b), InvalidArgument);
}

}  // namespace
}  // namespace meshloom::ops
