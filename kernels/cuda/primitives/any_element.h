// SPDX-License-Identifier: Apache-2.0
// Elements of a dtype that is known at run time alone, converted as the CPU's copy does: rounded
// once. For mixed dtypes, integers, float16, float64 and float8, which need no speed.
#pragma once

#include <bit>

#include "kernels/base/dtype.h"
#include "kernels/base/float8.h"
#include "kernels/cuda/primitives/convert.h"
#include "kernels/cuda/primitives/dtype_switch.h"

namespace meshloom::kernels::cuda {

/// Nearest float, except that an inexact result gets an odd last bit: rounding it again to a
/// shorter type gives what rounding the double once would.
__host__ __device__ constexpr float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  const bool is_finite = back - back == 0.0;
  if (back == value || !is_finite) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if ((back < 0 ? -back : back) > (value < 0 ? -value : value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

/// Refuses float8, which is stored and converted and not computed with.
inline void check_computed(const char* what, DType dtype) {
  if (dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2) refuse_dtype(what, dtype);
}

/// Element `index` as C: double (exact for floating dtypes), int64 (exact for the others, floating
/// values are truncated) or float.
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
    case DType::kFloat8E4M3:
      return static_cast<C>(float8_e4m3::to_float(static_cast<const std::uint8_t*>(data)[index]));
    case DType::kFloat8E5M2:
      return static_cast<C>(float8_e5m2::to_float(static_cast<const std::uint8_t*>(data)[index]));
  }
  return C{};
}

/// Floating values round to nearest even; to integers they are truncated; bool is 1 where the value
/// is not 0.
template <class C>
__device__ __forceinline__ void store_any(DType dtype, void* data, std::int64_t index, C value) {
  switch (dtype) {
    case DType::kFloat32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case DType::kBFloat16:
      static_cast<__nv_bfloat16*>(data)[index] =
          from_compute<__nv_bfloat16>(round_to_odd(static_cast<double>(value)));
      return;
    case DType::kFloat16:
      static_cast<__half*>(data)[index] =
          from_compute<__half>(round_to_odd(static_cast<double>(value)));
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
    case DType::kFloat8E4M3:
      static_cast<std::uint8_t*>(data)[index] =
          float8_e4m3::from_float(round_to_odd(static_cast<double>(value)));
      return;
    case DType::kFloat8E5M2:
      static_cast<std::uint8_t*>(data)[index] =
          float8_e5m2::from_float(round_to_odd(static_cast<double>(value)));
      return;
  }
}

}  // namespace meshloom::kernels::cuda
