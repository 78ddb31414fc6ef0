// SPDX-License-Identifier: Apache-2.0
// GELU by the normal distribution and by tanh, and their derivatives, in float or double.
#pragma once

#include <cmath>

#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

template <class C>
__device__ __forceinline__ C sigmoid(C x) {
  return C(1) / (C(1) + std::exp(-x));
}

template <class C>
__device__ __forceinline__ C normal_distribution(C x) {
  return C(0.5) * std::erfc(x * C(-0.70710678118654752440));
}

/// 2 u for u = sqrt(2 / pi) (x + 0.044715 x^3): GELU by tanh is x times the sigmoid of it.
template <class C>
__device__ __forceinline__ C gelu_exponent(C x, C x2) {
  return x * (C(1.59576912160573071176) + C(0.07135481627260025) * x2);
}

template <class C>
__device__ __forceinline__ C gelu(C x) {
  return x * normal_distribution(x);
}

template <class C>
__device__ __forceinline__ C gelu_slope(C x) {
  return normal_distribution(x) + x * C(0.39894228040143267794) * std::exp(C(-0.5) * x * x);
}

template <class C>
__device__ __forceinline__ C gelu_tanh(C x) {
  return x / (C(1) + std::exp(-gelu_exponent(x, x * x)));
}

template <class C>
__device__ __forceinline__ C gelu_tanh_slope(C x) {
  // Beyond this square the sigmoid is 0 or 1, and nothing overflows to infinity times 0.
  const C square = x * x;
  const C x2 = square < C(700) ? square : C(700);
  const C s = sigmoid(gelu_exponent(x, x2));
  return s + x * (C(1.59576912160573071176) + C(0.21406444881780075) * x2) * (s * (C(1) - s));
}

}  // namespace meshloom::kernels::cuda
