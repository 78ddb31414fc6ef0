// SPDX-License-Identifier: Apache-2.0
// Two normal values from two uniform ones (Box and Muller, 1958), by the polynomials and in the
// order of operations of kernels/cpu/simd/simd_math.h: with fused multiply-adds, which CPUs have
// from AVX2 on, the bits are the CPU's. For .cu files.
#pragma once

#include <bit>
#include <cmath>

#include "kernels/base/philox.h"
#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

/// Natural logarithm of x in [2^-24, 1].
__device__ __forceinline__ float log_of_uniform(float x) {
  // The mantissa goes to [sqrt(1/2), sqrt(2)).
  const std::int32_t bits = std::bit_cast<std::int32_t>(x) - 0x3f3504f3;
  const float e = static_cast<float>(bits >> 23);
  const float f = std::bit_cast<float>((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
  float q = std::fma(-7.636322e-02f, f, 1.276366e-01f);
  q = std::fma(q, f, -1.31605e-01f);
  q = std::fma(q, f, 1.4201504e-01f);
  q = std::fma(q, f, -1.6623302e-01f);
  q = std::fma(q, f, 2.0001236e-01f);
  q = std::fma(q, f, -2.5000823e-01f);
  q = std::fma(q, f, 3.333333e-01f);
  const float f2 = f * f;
  float tail = f2 * f * q;
  tail = std::fma(e, 1.42860677e-6f, tail);
  tail = std::fma(-0.5f, f2, tail);
  return std::fma(e, 0.693145752f, f + tail);
}

/// Sine and cosine of `turns` * 2 pi, turns in [0, 1].
__device__ __forceinline__ void sincos_turns(float turns, float& sine, float& cosine) {
  const float quarters = turns * 4.0f;
  const float rounded = std::rint(quarters);
  const float f = quarters - rounded;
  const float f2 = f * f;
  float s = std::fma(1.5819787e-04f, f2, -4.6812627e-03f);
  s = std::fma(s, f2, 7.969258e-02f);
  s = std::fma(s, f2, -6.459641e-01f);
  s = f * std::fma(s, f2, 1.5707964f);
  float c = std::fma(9.0396113e-04f, f2, -2.0860262e-02f);
  c = std::fma(c, f2, 2.5366923e-01f);
  c = std::fma(c, f2, -1.2337005f);
  c = std::fma(c, f2, 1.0f);
  const int quadrant = static_cast<int>(rounded);
  const bool odd = (quadrant & 1) != 0;
  sine = odd ? c : s;
  cosine = odd ? s : c;
  if ((quadrant & 2) != 0) sine = -sine;
  if (((quadrant + 1) & 2) != 0) cosine = -cosine;
}

__device__ __forceinline__ void normal_pair(std::uint32_t a, std::uint32_t b, float& first,
                                            float& second) {
  // 1 - u is in (0, 1], so that the logarithm is finite.
  const float radius = std::sqrt(-2.0f * log_of_uniform(1.0f - philox_uniform(a)));
  float sine, cosine;
  sincos_turns(philox_uniform(b), sine, cosine);
  first = radius * cosine;
  second = radius * sine;
}

}  // namespace meshloom::kernels::cuda
