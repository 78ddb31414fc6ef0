// SPDX-License-Identifier: Apache-2.0
// What a reduction takes of its elements: their sum, the sum of squared distances to a center, the
// maximum. For .cu files.
#pragma once

#include <cmath>

#include "kernels/cuda/primitives/any_element.h"
#include "kernels/cuda/primitives/reductions.h"

namespace meshloom::kernels::cuda {

enum class Term { kSum, kSquares, kMax };

template <class A>
__device__ __forceinline__ A start_of(Term term) {
  if (term != Term::kMax) return A(0);
  if constexpr (std::is_same_v<A, std::int64_t>)
    return -0x7fffffffffffffff - 1;
  else
    return static_cast<A>(-HUGE_VAL);
}

template <class A>
__device__ __forceinline__ A join(Term term, A a, A b) {
  return term == Term::kMax ? MaxOf{}(a, b) : a + b;
}

/// `center` is that of kSquares, which integers do not have.
template <class A>
__device__ __forceinline__ A fold(Term term, A a, A x, A center) {
  if constexpr (!std::is_same_v<A, std::int64_t>) {
    const A distance = x - center;
    if (term == Term::kSquares) return a + distance * distance;
  }
  return join(term, a, x);
}

/// Elements of one dtype: folded in float, joined in double.
template <class T>
struct TypedElements {
  using Folded = float;
  using Joined = double;
  static __device__ __forceinline__ float load(const void* data, DType, std::int64_t index) {
    return to_compute(static_cast<const T*>(data)[index]);
  }
};

/// Elements of any dtype: in double, or exact in 64-bit integers.
template <class C>
struct AnyElements {
  using Folded = C;
  using Joined = C;
  static __device__ __forceinline__ C load(const void* data, DType dtype, std::int64_t index) {
    return load_any<C>(dtype, data, index);
  }
};

}  // namespace meshloom::kernels::cuda
