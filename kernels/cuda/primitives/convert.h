// SPDX-License-Identifier: Apache-2.0
// Element types of kernels: what they compute in, and how they are read and written.
#pragma once

#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

/// The type in which a kernel computes and sums: float, or double for double.
template <class T>
struct ComputeType {
  using Type = float;
};
template <>
struct ComputeType<double> {
  using Type = double;
};
template <class T>
using Compute = typename ComputeType<T>::Type;

__device__ __forceinline__ float to_compute(float x) { return x; }
__device__ __forceinline__ double to_compute(double x) { return x; }
__device__ __forceinline__ float to_compute(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_compute(__half x) { return __half2float(x); }

/// Rounds to nearest even.
template <class T>
__device__ __forceinline__ T from_compute(Compute<T> x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else
    return x;
}

}  // namespace meshloom::kernels::cuda
