// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernels/cpu/kernel_test.h"

namespace meshloom::kernels::test {
namespace {

struct Tables {
  HostTensor cos, sin;
};

Tables make_tables(std::int64_t positions, std::int64_t half) {
  Tables tables{HostTensor({positions, half}, DType::kFloat32),
                HostTensor({positions, half}, DType::kFloat32)};
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) / std::pow(10000.0, static_cast<double>(i) / half);
      tables.cos.set(p * half + i, std::cos(angle));
      tables.sin.set(p * half + i, std::sin(angle));
    }
  return tables;
}

// A [B, H, S, D] view of memory laid out [B, S, H, D].
TensorView heads_inner(const HostTensor& tensor) {
  TensorView view = tensor.view();
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

double element(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t s,
               std::int64_t d) {
  const std::int64_t at =
      b * view.stride(0) + h * view.stride(1) + s * view.stride(2) + d * view.stride(3);
  double value = 0.0;
  cpu::dispatch_any(view.dtype, "element", [&]<typename T>(cpu::TypeTag<T>) {
    value = cpu::convert<double>(view.as<const T>()[at]);
  });
  return value;
}

void expect_rotated(const TensorView& y, const TensorView& x, const Tables& tables, double sign,
                    const std::function<std::int64_t(std::int64_t, std::int64_t)>& position) {
  const std::int64_t half = x.size(3) / 2;
  for (std::int64_t b = 0; b < x.size(0); ++b)
    for (std::int64_t h = 0; h < x.size(1); ++h)
      for (std::int64_t s = 0; s < x.size(2); ++s)
        for (std::int64_t i = 0; i < half; ++i) {
          const double c = tables.cos.get(position(b, s) * half + i);
          const double t = sign * tables.sin.get(position(b, s) * half + i);
          const double low = element(x, b, h, s, i);
          const double high = element(x, b, h, s, i + half);
          const double bound = 3 * tolerance(x.dtype);
          ASSERT_NEAR(element(y, b, h, s, i), low * c - high * t, bound);
          ASSERT_NEAR(element(y, b, h, s, i + half), high * c + low * t, bound);
        }
}

TEST(Rope, BothLayoutsAndDirections) {
  Rng rng(1);
  for (const DType dtype : kFloatDTypes) {
    for (const std::int64_t half : {3, 16, 20}) {
      const Tables tables = make_tables(50, half);
      const HostTensor x = random_tensor({2, 5, 19, 2 * half}, dtype, rng);
      const HostTensor by_token = random_tensor({2, 19, 5, 2 * half}, dtype, rng);
      for_all_settings([&](const KernelContext& context) {
        for (const bool inverse : {false, true}) {
          RopeOptions options;
          options.cos = tables.cos;
          options.sin = tables.sin;
          options.position_offset = 7;
          options.inverse = inverse;
          const auto position = [](std::int64_t, std::int64_t s) { return s + 7; };
          HostTensor y({2, 5, 19, 2 * half}, dtype);
          backend().rope(context, y, x, options);
          expect_rotated(y, x, tables, inverse ? -1.0 : 1.0, position);
          HostTensor z({2, 19, 5, 2 * half}, dtype);
          backend().rope(context, heads_inner(z), heads_inner(by_token), options);
          expect_rotated(heads_inner(z), heads_inner(by_token), tables, inverse ? -1.0 : 1.0,
                         position);
        }
      });
    }
  }
}

TEST(Rope, PositionsOfTheirOwn) {
  Rng rng(2);
  const Tables tables = make_tables(50, 8);
  const HostTensor x = random_tensor({3, 2, 11, 16}, DType::kFloat32, rng);
  const HostTensor positions = random_ids({3, 11}, 50, rng);
  RopeOptions options;
  options.cos = tables.cos;
  options.sin = tables.sin;
  options.positions = positions;
  for_all_settings([&](const KernelContext& context) {
    HostTensor y({3, 2, 11, 16}, DType::kFloat32);
    backend().rope(context, y, x, options);
    expect_rotated(y, x, tables, 1.0, [&](std::int64_t b, std::int64_t s) {
      return static_cast<std::int64_t>(positions.get(b * 11 + s));
    });
  });
}

TEST(Rope, InPlaceAndBack) {
  Rng rng(3);
  const Tables tables = make_tables(40, 32);
  const HostTensor x = random_tensor({1, 3, 40, 64}, DType::kFloat32, rng);
  RopeOptions options;
  options.cos = tables.cos;
  options.sin = tables.sin;
  for_all_settings([&](const KernelContext& context) {
    HostTensor y({1, 3, 40, 64}, DType::kFloat32);
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
  const HostTensor x({1, 1, 8, 4}, DType::kFloat32);
  RopeOptions options;
  options.cos = tables.cos;
  options.sin = tables.sin;
  options.position_offset = 3;
  EXPECT_THROW(backend().rope({}, x, x, options), OutOfRange);
}

// Those in device memory cannot be refused by a throw.
TEST(Rope, GivenPositionsOutsideTheTableReadItsFirstRow) {
  const Tables tables = make_tables(10, 2);
  Rng rng(6);
  const HostTensor x = random_tensor({1, 2, 3, 4}, DType::kFloat32, rng);
  const HostTensor y({1, 2, 3, 4}, DType::kFloat32), expected({1, 2, 3, 4}, DType::kFloat32);
  HostTensor positions({1, 3}, DType::kInt64);
  positions.set(1, 9.0);
  RopeOptions options;
  options.cos = tables.cos;
  options.sin = tables.sin;
  options.positions = positions;
  backend().rope({}, expected, x, options);
  for (const double bad : {-1.0, 10.0, 1e18}) {
    positions.set(2, bad);
    backend().rope({}, y, x, options);
    EXPECT_EQ(y.values(), expected.values());
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
