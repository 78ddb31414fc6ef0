// SPDX-License-Identifier: Apache-2.0
// Loads and stores of 16 bytes.
#pragma once

#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

inline constexpr int kVectorBytes = 16;

/// Elements that one instruction loads or stores. The address is a multiple of its size.
template <class T, int kCount = kVectorBytes / static_cast<int>(sizeof(T))>
struct alignas(sizeof(T) * kCount) Vector {
  T values[kCount];

  __device__ __forceinline__ T& operator[](int i) { return values[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return values[i]; }
};

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int kVectorElements = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
__device__ __forceinline__ Vector<T> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T>*>(from);
}

template <class T>
__device__ __forceinline__ void store_vector(T* to, const Vector<T>& vector) {
  *reinterpret_cast<Vector<T>*>(to) = vector;
}

/// Whether vectors may be loaded from rows that begin at `data`, `row` elements of `element_bytes`
/// apart. For the host, which chooses between two kernels.
inline bool vectors_fit(const void* data, std::int64_t row, std::size_t element_bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % kVectorBytes == 0 &&
         static_cast<std::size_t>(row) * element_bytes % kVectorBytes == 0;
}

}  // namespace meshloom::kernels::cuda
