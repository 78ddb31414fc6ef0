// SPDX-License-Identifier: Apache-2.0
// Elements of a dtype that is known at run time alone: for mixed dtypes, integers, float16 and
// float64, which need no speed.
#pragma once

#include "kernels/base/dtype.h"
#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/dtype_switch.h"

namespace meshloom::kernels::cuda {

/// Refuses dtypes that load_any does not know.
inline void check_computed(const char* what, DType dtype) {
  if (dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2) refuse_dtype(what, dtype);
}

inline bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16 ||
         dtype == DType::kFloat64;
}

/// Element `index` as C: double, or int64 for the integer dtypes. Floating values are truncated to
/// integers.
template <class C>
__device__ __forceinline__ C load_any(DType dtype, const void* data, std::int64_t index) {
  switch (dtype) {
    case DType::kFloat32: return static_cast<C>(static_cast<const float*>(data)[index]);
    case DType::kBFloat16:
      return static_cast<C>(to_compute(static_cast<const __nv_bfloat16*>(data)[index]));
    case DType::kFloat16:
      return static_cast<C>(to_compute(static_cast<const __half*>(data)[index]));
    case DType::kFloat64: return static_cast<C>(static_cast<const double*>(data)[index]);
    case DType::kInt64: return static_cast<C>(static_cast<const std::int64_t*>(data)[index]);
    case DType::kInt32: return static_cast<C>(static_cast<const std::int32_t*>(data)[index]);
    case DType::kUInt8:
    case DType::kBool: return static_cast<C>(static_cast<const std::uint8_t*>(data)[index]);
    default: return C{};
  }
}

/// Stores as the CPU does: 16-bit floats are rounded to nearest even (by way of float32), integers
/// truncated towards 0, bool is 1 where the value is not 0.
template <class C>
__device__ __forceinline__ void store_any(DType dtype, void* data, std::int64_t index, C value) {
  switch (dtype) {
    case DType::kFloat32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case DType::kBFloat16:
      static_cast<__nv_bfloat16*>(data)[index] =
          from_compute<__nv_bfloat16>(static_cast<float>(value));
      return;
    case DType::kFloat16:
      static_cast<__half*>(data)[index] = from_compute<__half>(static_cast<float>(value));
      return;
    case DType::kFloat64: static_cast<double*>(data)[index] = static_cast<double>(value); return;
    case DType::kInt64:
      static_cast<std::int64_t*>(data)[index] = static_cast<std::int64_t>(value);
      return;
    case DType::kInt32:
      static_cast<std::int32_t*>(data)[index] = static_cast<std::int32_t>(value);
      return;
    case DType::kUInt8:
      static_cast<std::uint8_t*>(data)[index] = static_cast<std::uint8_t>(value);
      return;
    case DType::kBool:
      static_cast<std::uint8_t*>(data)[index] = value != C{} ? std::uint8_t{1} : std::uint8_t{0};
      return;
    default: return;
  }
}

}  // namespace meshloom::kernels::cuda
