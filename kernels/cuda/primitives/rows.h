// SPDX-License-Identifier: Apache-2.0
// Rows of a matrix: who works on a row, how its columns are gone over, and scalars that belong to
// rows.
#pragma once

#include "kernels/base/dtype.h"
#include "kernels/base/integer_math.h"
#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/reductions.h"
#include "kernels/cuda/primitives/vectors.h"

namespace meshloom::kernels::cuda {

template <int kValue>
struct IntTag {
  static constexpr int value = kValue;
};

/// The threads of one row: a warp (blocks have four), or a whole block of kThreads. Threads whose
/// row() does not exist return at once, all of a group together.
template <int kThreads>
struct RowGroup {
  static constexpr int kBlock = kThreads == kWarp ? 4 * kWarp : kThreads;
  static constexpr int kRows = kBlock / kThreads;

  static unsigned blocks(std::int64_t rows) {
    return static_cast<unsigned>(divide_up<std::int64_t>(rows, kRows));
  }
  static __device__ __forceinline__ std::int64_t row() {
    return static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads;
  }
  static __device__ __forceinline__ int thread() { return threadIdx.x % kThreads; }
  template <class T, class Op>
  static __device__ __forceinline__ T reduce(T value, Op op) {
    if constexpr (kThreads == kWarp)
      return warp_reduce(value, op);
    else
      return block_reduce<kThreads>(value, op);
  }
};

/// Some neighbouring elements of a row, in the type that kernels compute in.
template <class F, int kCount>
struct Values {
  F at[kCount];

  __device__ __forceinline__ F& operator[](int i) { return at[i]; }
  __device__ __forceinline__ const F& operator[](int i) const { return at[i]; }
};

/// kCount elements by loads of at most 16 bytes; the address is a multiple of such a load.
template <int kCount, class T>
__device__ __forceinline__ Values<Compute<T>, kCount> load_values(const T* from) {
  constexpr int kStep = kCount < kVectorElements<T> ? kCount : kVectorElements<T>;
  Values<Compute<T>, kCount> values;
  for (int i = 0; i < kCount; i += kStep) {
    const auto vector = *reinterpret_cast<const Vector<T, kStep>*>(from + i);
    for (int j = 0; j < kStep; ++j) values[i + j] = to_compute(vector[j]);
  }
  return values;
}

template <int kCount, class T>
__device__ __forceinline__ void store_values(T* to, const Values<Compute<T>, kCount>& values) {
  constexpr int kStep = kCount < kVectorElements<T> ? kCount : kVectorElements<T>;
  for (int i = 0; i < kCount; i += kStep) {
    Vector<T, kStep> vector;
    for (int j = 0; j < kStep; ++j) vector[j] = from_compute<T>(values[i + j]);
    *reinterpret_cast<Vector<T, kStep>*>(to + i) = vector;
  }
}

/// Calls body(first column, IntTag<count>) for pieces of kCount columns, then of one where that
/// many are not left. A thread gets the same columns in every call.
template <class Group, int kCount, class Body>
__device__ __forceinline__ void for_columns(std::int64_t columns, Body&& body) {
  const std::int64_t whole = columns - columns % kCount;
  constexpr int kStep = Group::kBlock / Group::kRows * kCount;
  for (std::int64_t i = Group::thread() * kCount; i < whole; i += kStep) body(i, IntTag<kCount>{});
  if constexpr (kCount > 1) {
    for (std::int64_t i = whole + Group::thread(); i < columns; i += kStep / kCount)
      body(i, IntTag<1>{});
  }
}

/// Rows of at most so many columns have a warp each, where vectors are loaded.
inline constexpr std::int64_t kWarpColumns = 1024;

/// Calls body(IntTag<threads of a row>, IntTag<columns of a piece>) for rows of elements T. Pieces
/// of 16 bytes are for float32 and bfloat16 where `vectors` says that rows begin at such addresses.
template <class T, class Body>
void for_row_kernel(std::int64_t columns, bool vectors, Body&& body) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, __nv_bfloat16>) {
    if (vectors) {
      if (columns <= kWarpColumns) return body(IntTag<kWarp>{}, IntTag<kVectorElements<T>>{});
      return body(IntTag<256>{}, IntTag<kVectorElements<T>>{});
    }
  }
  return body(IntTag<128>{}, IntTag<1>{});
}

/// One scalar a row, float32 or float64; null where it is not given.
struct RowScalars {
  void* data = nullptr;
  bool wide = false;

  RowScalars(void* scalars, DType dtype) : data(scalars), wide(dtype == DType::kFloat64) {}
  template <class F>
  __device__ __forceinline__ F load(std::int64_t row) const {
    return wide ? static_cast<F>(static_cast<const double*>(data)[row])
                : static_cast<F>(static_cast<const float*>(data)[row]);
  }
  template <class F>
  __device__ __forceinline__ void store(std::int64_t row, F value) const {
    if (wide)
      static_cast<double*>(data)[row] = static_cast<double>(value);
    else
      static_cast<float*>(data)[row] = static_cast<float>(value);
  }
};

}  // namespace meshloom::kernels::cuda
