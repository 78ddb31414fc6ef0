// SPDX-License-Identifier: Apache-2.0
// Rows of a matrix: who works on a row, how its columns are gone over, and scalars that belong to
// rows.
#pragma once

#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/dtype_switch.h"
#include "kernels/cuda/primitives/grid.h"
#include "kernels/cuda/primitives/reductions.h"
#include "kernels/cuda/primitives/vectors.h"

namespace meshloom::kernels::cuda {

template <int kValue>
struct IntTag {
  static constexpr int value = kValue;
};

/// kCount neighbouring columns. With kAligned a vector lies at their address, else they are loaded
/// and stored one by one.
template <int kCount, bool kAligned>
struct Piece {
  static constexpr int value = kCount;
  static constexpr bool aligned = kAligned;
};

/// The threads of one row: a warp (blocks have four), or a whole block of kThreads, which take
/// pieces of kCount columns. Threads whose row() does not exist return at once, all of a group
/// together.
template <int kThreads, int kCount, bool kAligned>
struct RowGroup {
  using Columns = Piece<kCount, kAligned>;
  static constexpr int kBlock = kThreads == kWarp ? 4 * kWarp : kThreads;
  static constexpr int kRows = kBlock / kThreads;

  static dim3 grid(std::int64_t rows) { return grid_for(rows, kRows); }
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

template <class T, int kCount, bool kAligned>
__device__ __forceinline__ Values<Compute<T>, kCount> load_values(const T* from,
                                                                  Piece<kCount, kAligned>) {
  if constexpr (kAligned) {
    return load_values<kCount>(from);
  } else {
    Values<Compute<T>, kCount> values;
    for (int i = 0; i < kCount; ++i) values[i] = to_compute(from[i]);
    return values;
  }
}

template <class T, int kCount, bool kAligned>
__device__ __forceinline__ void store_values(T* to, const Values<Compute<T>, kCount>& values,
                                             Piece<kCount, kAligned>) {
  if constexpr (kAligned)
    store_values(to, values);
  else
    for (int i = 0; i < kCount; ++i) to[i] = from_compute<T>(values[i]);
}

/// Calls body(first column, Piece) for the pieces of a row, then for single columns where no piece
/// is left. A thread gets the same columns in every call, whether they are aligned or not.
template <class Group, class Body>
__device__ __forceinline__ void for_columns(std::int64_t columns, Body&& body) {
  constexpr int kCount = Group::Columns::value;
  const std::int64_t whole = columns - columns % kCount;
  constexpr int kStep = Group::kBlock / Group::kRows * kCount;
  for (std::int64_t i = Group::thread() * kCount; i < whole; i += kStep)
    body(i, typename Group::Columns{});
  if constexpr (kCount > 1) {
    for (std::int64_t i = whole + Group::thread(); i < columns; i += kStep / kCount)
      body(i, Piece<1, true>{});
  }
}

/// Rows of float32 and bfloat16 of at most so many columns have a warp each.
inline constexpr std::int64_t kWarpColumns = 1024;

/// Calls body(TypeTag<RowGroup>{}) for rows of elements T. Pieces of float32 and bfloat16 have 16
/// bytes, and `aligned` says whether rows begin at such addresses. Which thread sums what depends
/// on `columns` alone.
template <class T, class Body>
void for_row_kernel(std::int64_t columns, bool aligned, Body&& body) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, __nv_bfloat16>) {
    constexpr int kCount = kVectorElements<T>;
    if (columns <= kWarpColumns && aligned) return body(TypeTag<RowGroup<kWarp, kCount, true>>{});
    if (columns <= kWarpColumns) return body(TypeTag<RowGroup<kWarp, kCount, false>>{});
    if (aligned) return body(TypeTag<RowGroup<256, kCount, true>>{});
    return body(TypeTag<RowGroup<256, kCount, false>>{});
  } else {
    return body(TypeTag<RowGroup<128, 1, true>>{});
  }
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
