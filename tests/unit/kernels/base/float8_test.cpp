// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/backend_table.h"

namespace meshloom {
namespace {

struct Format {
  DType dtype;
  int mantissa, bias, largest;  ///< the largest code
  std::uint8_t (*from)(float);
  float (*to)(std::uint8_t);
};

const Format kFormats[] = {
    {DType::kFloat8E4M3, 3, 7, 0x7e, float8_e4m3::from_float, float8_e4m3::to_float},
    {DType::kFloat8E5M2, 2, 15, 0x7b, float8_e5m2::from_float, float8_e5m2::to_float}};

// A code's value from the definition of the formats.
double value_of(const Format& format, int bits) {
  const int code = bits & 0x7f;
  const double sign = bits >= 0x80 ? -1.0 : 1.0;
  if (format.dtype == DType::kFloat8E5M2 && code == 0x7c) return sign * INFINITY;
  if (code > format.largest) return NAN;
  const int exponent = code >> format.mantissa, steps = 1 << format.mantissa;
  if (exponent == 0) return sign * std::ldexp(code, 1 - format.bias - format.mantissa);
  return sign * std::ldexp(steps + code % steps, exponent - format.bias - format.mantissa);
}

TEST(Float8, EveryCodeHasItsValueAndComesBack) {
  for (const Format& format : kFormats) {
    for (int code = 0; code < 256; ++code) {
      const auto bits = static_cast<std::uint8_t>(code);
      const double expected = value_of(format, code);
      const float value = format.to(bits);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value));
        EXPECT_TRUE(std::isnan(format.to(format.from(value))));
      } else {
        EXPECT_EQ(value, expected) << code;
        EXPECT_EQ(std::signbit(value), std::signbit(expected)) << code;
        if (!std::isinf(expected)) {
          EXPECT_EQ(format.from(value), bits);
        }
      }
    }
  }
  EXPECT_EQ(float8_e4m3::to_float(0x7e), 448.0f);
  EXPECT_EQ(float8_e5m2::to_float(0x7b), 57344.0f);
}

TEST(Float8, TiesGoToEvenAndTheRestToTheNearest) {
  for (const Format& format : kFormats) {
    for (int code = 0; code < format.largest; ++code) {
      const auto low = static_cast<std::uint8_t>(code), high = static_cast<std::uint8_t>(code + 1);
      const float middle = (format.to(low) + format.to(high)) / 2;
      EXPECT_EQ(format.from(middle), code % 2 == 0 ? low : high) << code;
      EXPECT_EQ(format.from(std::nextafter(middle, 0.0f)), low) << code;
      EXPECT_EQ(format.from(std::nextafter(middle, 1e9f)), high) << code;
      EXPECT_EQ(format.from(-middle), 0x80 | format.from(middle)) << code;
    }
  }
}

TEST(Float8, WhatIsTooLargeBecomesTheLargest) {
  for (const Format& format : kFormats) {
    const float largest = format.to(static_cast<std::uint8_t>(format.largest));
    for (const float value : {largest * 1.01f, largest * 1.1f, largest * 4, 1e38f, INFINITY}) {
      EXPECT_EQ(format.to(format.from(value)), largest);
      EXPECT_EQ(format.to(format.from(-value)), -largest);
    }
  }
}

TEST(Float8, TensorsAreConvertedByCopies) {
  kernels::Backend& backend = kernels::backend_for(kCpuDevice);
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0.0, 100.0);
  std::vector<double> values(1000), back(1000);
  for (double& value : values) value = normal(random);
  // Between a float and its neighbour, just above the middle of 1 and 1.125: a double that is
  // rounded to float first would be that middle, and go to 1.
  values[0] = 1.0625 + 0x1p-40;
  std::vector<std::uint8_t> codes(1000);
  for (const Format& format : kFormats) {
    const TensorView stored = make_view(codes.data(), format.dtype, {1000});
    backend.copy({}, stored, make_view(values.data(), DType::kFloat64, {1000}));
    backend.copy({}, make_view(back.data(), DType::kFloat64, {1000}), stored);
    for (std::size_t i = 1; i < 1000; ++i) {
      EXPECT_EQ(codes[i], format.from(static_cast<float>(values[i]))) << values[i];
      EXPECT_EQ(back[i], format.to(codes[i]));
    }
  }
  const TensorView one = make_view(codes.data(), DType::kFloat8E4M3, {1});
  backend.copy({}, one, make_view(values.data(), DType::kFloat64, {1}));
  EXPECT_EQ(float8_e4m3::to_float(codes[0]), 1.125f);
  backend.fill({}, one, 300.0);
  EXPECT_EQ(float8_e4m3::to_float(codes[0]), 288.0f);
}

}  // namespace
}  // namespace meshloom
