// SPDX-License-Identifier: Apache-2.0
// float8_e4m3 and float8_e5m2 as storage types, converted by bit arithmetic (round to nearest, ties
// to even; what is too large becomes the largest number).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace meshloom {

/// It has a sign, exponent bits of this bias, mantissa bits. Codes above kLargest are NaN or, where
/// the format has one, the infinity right behind it: values never round to them, infinities
/// neither.
template <int kMantissa, int kBias, std::uint8_t kLargest, bool kHasInfinity>
struct Float8 {
  std::uint8_t bits = 0;

  Float8() = default;
  explicit Float8(float value) : bits(from_float(value)) {}
  explicit operator float() const { return kValues[bits]; }

  static constexpr std::uint8_t from_float(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint8_t>((u >> 24) & 0x80u);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
    constexpr int kShift = 23 - kMantissa;
    constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
    std::uint32_t code = 0;
    if (magnitude < kSmallestNormal) {
      // The sum has steps of the smallest subnormal number, and the addition rounds to them.
      constexpr float kSteps =
          std::bit_cast<float>(static_cast<std::uint32_t>(128 - kBias + kShift) << 23);
      code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + kSteps) -
             std::bit_cast<std::uint32_t>(kSteps);
    } else {
      const std::uint32_t odd = (magnitude >> kShift) & 1u;
      const std::uint32_t rounded = magnitude + ((1u << (kShift - 1)) - 1) + odd;
      code = (rounded >> kShift) - (static_cast<std::uint32_t>(127 - kBias) << kMantissa);
    }
    return static_cast<std::uint8_t>(sign | (code < kLargest ? code : kLargest));
  }

  static constexpr float to_float(std::uint8_t bits) {
    const int code = bits & 0x7f;
    const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
    if (code > kLargest)
      return kHasInfinity && code == kLargest + 1
                 ? sign * std::numeric_limits<float>::infinity()
                 : std::bit_cast<float>(sign < 0.0f ? 0xffc00000u : 0x7fc00000u);
    const int exponent = code >> kMantissa;
    const int mantissa = code & ((1 << kMantissa) - 1);
    const int steps = exponent == 0 ? mantissa : mantissa + (1 << kMantissa);
    const int power = (exponent == 0 ? 1 : exponent) - kBias - kMantissa;
    return sign * static_cast<float>(steps) *
           std::bit_cast<float>(static_cast<std::uint32_t>(127 + power) << 23);
  }

 private:
  static constexpr std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (std::size_t i = 0; i < 256; ++i) values[i] = to_float(static_cast<std::uint8_t>(i));
    return values;
  }();
};

/// It goes up to 448; no infinities.
using float8_e4m3 = Float8<3, 7, 0x7e, false>;
/// It goes up to 57344.
using float8_e5m2 = Float8<2, 15, 0x7b, true>;
static_assert(sizeof(float8_e4m3) == 1 && sizeof(float8_e5m2) == 1);

}  // namespace meshloom
