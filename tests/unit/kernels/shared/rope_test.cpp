// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/error.h"
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

struct Tables {
  TestTensor cos, sin;
};

Tables make_tables(std::int64_t positions, std::int64_t half) {
  Tables tables{TestTensor({positions, half}, DType::kFloat32),
                TestTensor({positions, half}, DType::kFloat32)};
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) / std::pow(10000.0, static_cast<double>(i) / half);
      tables.cos.set(p * half + i, std::cos(angle));
      tables.sin.set(p * half + i, std::sin(angle));
    }
  return tables;
}

// [B, H, S, D] as [B, S, H, D] in memory.
TestTensor by_token(const Shape& shape, DType dtype) {
  return TestTensor(dtype, shape, {0, 2, 1, 3}, 3);
}

void expect_rotated(const TestTensor& y, const TestTensor& x, const Tables& tables, double sign,
                    const std::function<std::int64_t(std::int64_t, std::int64_t)>& position) {
  const std::int64_t half = x.shape()[3] / 2;
  for (std::int64_t b = 0; b < x.shape()[0]; ++b)
    for (std::int64_t h = 0; h < x.shape()[1]; ++h)
      for (std::int64_t s = 0; s < x.shape()[2]; ++s)
        for (std::int64_t i = 0; i < half; ++i) {
          const double c = tables.cos.at(position(b, s) * half + i);
          const double t = sign * tables.sin.at(position(b, s) * half + i);
          const std::int64_t row = ((b * x.shape()[1] + h) * x.shape()[2] + s) * 2 * half;
          const double low = x.at(row + i), high = x.at(row + half + i);
          const double bound = 3 * tolerance(x.dtype());
          ASSERT_NEAR(y.at(row + i), low * c - high * t, bound);
          ASSERT_NEAR(y.at(row + half + i), high * c + low * t, bound);
        }
}

TEST(Rope, BothLayoutsAndDirections) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    for (const std::int64_t half : {1, 3, 16, 20}) {
      const Tables tables = make_tables(50, half);
      const TestTensor x = random_tensor({2, 5, 19, 2 * half}, dtype, rng);
      const TestTensor tokens = by_token({2, 5, 19, 2 * half}, dtype);
      for (std::int64_t i = 0; i < tokens.numel(); ++i) tokens.set(i, x.at(tokens.numel() - 1 - i));
      for_all_settings([&](const KernelContext& context) {
        for (const bool inverse : {false, true}) {
          RopeOptions options;
          options.cos = tables.cos;
          options.sin = tables.sin;
          options.position_offset = 7;
          options.inverse = inverse;
          const auto position = [](std::int64_t, std::int64_t s) { return s + 7; };
          TestTensor y({2, 5, 19, 2 * half}, dtype);
          backend().rope(context, y, x, options);
          expect_rotated(y, x, tables, inverse ? -1.0 : 1.0, position);
          const TestTensor z = by_token({2, 5, 19, 2 * half}, dtype);
          backend().rope(context, z, tokens, options);
          expect_rotated(z, tokens, tables, inverse ? -1.0 : 1.0, position);
        }
      });
    }
  }
}

TEST(Rope, PositionsOfTheirOwn) {
  Rng rng(2);
  const Tables tables = make_tables(50, 8);
  const TestTensor x = random_tensor({3, 2, 11, 16}, DType::kFloat32, rng);
  const TestTensor positions = random_ids({3, 11}, 50, rng);
  RopeOptions options;
  options.cos = tables.cos;
  options.sin = tables.sin;
  options.positions = positions;
  for_all_settings([&](const KernelContext& context) {
    TestTensor y({3, 2, 11, 16}, DType::kFloat32);
    backend().rope(context, y, x, options);
    expect_rotated(y, x, tables, 1.0, [&](std::int64_t b, std::int64_t s) {
      return static_cast<std::int64_t>(positions.at(b * 11 + s));
    });
  });
}

TEST(Rope, InPlaceAndBack) {
  Rng rng(3);
  const Tables tables = make_tables(40, 32);
  const TestTensor x = random_tensor({1, 3, 40, 64}, DType::kFloat32, rng);
  RopeOptions options;
  options.cos = tables.cos;
  options.sin = tables.sin;
  for_all_settings([&](const KernelContext& context) {
    TestTensor y({1, 3, 40, 64}, DType::kFloat32);
    backend().copy(context, y, x);
    options.inverse = false;
    backend().rope(context, y, y, options);
    options.inverse = true;
    backend().rope(context, y, y, options);
    expect_close(y.values(), x.values(), 1e-6);
  });
}

TEST(Rope, RefusesPositionsOutsideTheTable) {
  const Tables tables = make_tables(10, 2);
  const TestTensor x({1, 1, 8, 4}, DType::kFloat32);
  RopeOptions options;
  options.cos = tables.cos;
  options.sin = tables.sin;
  options.position_offset = 3;
  EXPECT_THROW(
      {
        backend().rope(test_context(), x, x, options);
        finish();
      },
      OutOfRange);
}

// Those in device memory cannot be refused by a throw.
TEST(Rope, GivenPositionsOutsideTheTableReadItsFirstRow) {
  const Tables tables = make_tables(10, 2);
  Rng rng(6);
  const TestTensor x = random_tensor({1, 2, 3, 4}, DType::kFloat32, rng);
  const TestTensor y({1, 2, 3, 4}, DType::kFloat32), expected({1, 2, 3, 4}, DType::kFloat32);
  const TestTensor positions = zeros({1, 3}, DType::kInt64);
  positions.set(1, 9.0);
  RopeOptions options;
  options.cos = tables.cos;
  options.sin = tables.sin;
  options.positions = positions;
  backend().rope(test_context(), expected, x, options);
  for (const double bad : {-1.0, 10.0, 1e18}) {
    positions.set(2, bad);
    options.positions = positions;
    backend().rope(test_context(), y, x, options);
    EXPECT_EQ(y.values(), expected.values());
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
