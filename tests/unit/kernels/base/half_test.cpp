// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace meshloom {
namespace {

// A float16 pattern's value from its definition.
double float16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31)
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Float16, EveryPatternHasItsValueAndComesBack) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double expected = float16_value(bits);
    const float value = float16::to_float(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(float16::to_float(float16::from_float(value))));
    } else {
      ASSERT_EQ(value, expected) << i;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << i;
      ASSERT_EQ(float16::from_float(value), bits) << i;
    }
  }
}

TEST(Float16, TiesGoToEvenAndTheRestToTheNearest) {
  for (std::uint32_t i = 0; i < 0x7c00; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);
    // Past the largest finite value the next step up would be 65536.
    const double next = high == 0x7c00 ? 65536.0 : float16_value(high);
    const auto middle = static_cast<float>((float16_value(low) + next) / 2);
    const std::uint16_t even = (low & 1u) == 0 ? low : high;
    ASSERT_EQ(float16::from_float(middle), even) << i;
    ASSERT_EQ(float16::from_float(std::nextafterf(middle, 0.0f)), low) << i;
    ASSERT_EQ(float16::from_float(std::nextafterf(middle, 1e9f)), high) << i;
    ASSERT_EQ(float16::from_float(-middle), even | 0x8000u) << i;
  }
}

TEST(Float16, OverflowAndInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float16::from_float(inf), 0x7c00);
  EXPECT_EQ(float16::from_float(-inf), 0xfc00);
  EXPECT_EQ(float16::from_float(3e38f), 0x7c00);
  EXPECT_EQ(float16::from_float(1e-30f), 0);
  EXPECT_EQ(float16::from_float(-1e-30f), 0x8000);
}

TEST(BFloat16, EveryPatternComesBack) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    bfloat16 value;
    value.bits = static_cast<std::uint16_t>(i);
    const auto wide = static_cast<float>(value);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(wide))));
    else
      ASSERT_EQ(bfloat16(wide).bits, i);
  }
}

TEST(BFloat16, TiesGoToEvenAndTheRestToTheNearest) {
  for (std::uint32_t i = 0; i < 0x7f80; ++i) {
    const float middle = std::bit_cast<float>(i << 16 | 0x8000u);
    const std::uint32_t even = (i & 1u) == 0 ? i : i + 1;
    ASSERT_EQ(bfloat16::from_float(middle), even) << i;
    ASSERT_EQ(bfloat16::from_float(std::bit_cast<float>(i << 16 | 0x7fffu)), i);
    ASSERT_EQ(bfloat16::from_float(std::bit_cast<float>(i << 16 | 0x8001u)), i + 1);
    ASSERT_EQ(bfloat16::from_float(-middle), even | 0x8000u);
  }
}

TEST(BFloat16, NanStaysNan) {
  // Rounding up this pattern as a number would turn it into infinity or zero.
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xffffffffu, 0xff800001u})
    EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(bits)))));
}

}  // namespace
}  // namespace meshloom
