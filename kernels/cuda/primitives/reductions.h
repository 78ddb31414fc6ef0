// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over a warp and over a block, in an order that depends on the number of threads
// alone.
#pragma once

#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

struct SumOf {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// NaN wins, whichever side it comes from.
struct MaxOf {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a != a ? a : (b != b ? b : (a < b ? b : a));
  }
};

/// Every lane of the warp calls it and gets the result.
template <class T, class Op>
__device__ __forceinline__ T warp_reduce(T value, Op op) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(kWholeWarp, value, offset));
  return value;
}

/// Every thread of a block of kThreads (a multiple of 32, in x) calls it and gets the result. Calls
/// may follow one another without a barrier.
template <int kThreads, class T, class Op>
__device__ __forceinline__ T block_reduce(T value, Op op) {
  static_assert(kThreads % kWarp == 0);
  value = warp_reduce(value, op);
  if constexpr (kThreads > kWarp) {
    MESHLOOM_SHARED(partial, T[kThreads / kWarp]);
    __syncthreads();  // the call before may still be reading
    if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = partial[0];
    for (int warp = 1; warp < kThreads / kWarp; ++warp) value = op(value, partial[warp]);
  }
  return value;
}

}  // namespace meshloom::kernels::cuda
