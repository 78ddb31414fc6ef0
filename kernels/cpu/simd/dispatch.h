// SPDX-License-Identifier: Apache-2.0
// From a run-time dtype to a C++ type.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/base/dtype.h"
#include "kernels/base/error.h"
#include "kernels/base/float8.h"
#include "kernels/base/half.h"

namespace meshloom::kernels::cpu {

/// bool elements are stored as bytes of 0 and 1; a type of its own keeps conversions apart from
/// uint8.
struct Bool8 {
  std::uint8_t byte = 0;
};

template <typename T>
struct TypeTag {
  using type = T;
};

/// Calls fn(TypeTag<T>{}) with T = float, bfloat16 or float16. Throws Unimplemented otherwise.
template <typename Fn>
void dispatch_float(DType dtype, const char* op, Fn&& fn) {
  switch (dtype) {
    case DType::kFloat32: return fn(TypeTag<float>{});
    case DType::kBFloat16: return fn(TypeTag<bfloat16>{});
    case DType::kFloat16: return fn(TypeTag<float16>{});
    default: break;
  }
  throw Unimplemented(fmt::format("{}: dtype {} is not offered on the CPU", op, dtype_name(dtype)));
}

/// Calls fn(TypeTag<T>{}) for every dtype but the float8 ones. Throws Unimplemented for those.
template <typename Fn>
void dispatch_any(DType dtype, const char* op, Fn&& fn) {
  switch (dtype) {
    case DType::kFloat32: return fn(TypeTag<float>{});
    case DType::kBFloat16: return fn(TypeTag<bfloat16>{});
    case DType::kFloat16: return fn(TypeTag<float16>{});
    case DType::kFloat64: return fn(TypeTag<double>{});
    case DType::kInt64: return fn(TypeTag<std::int64_t>{});
    case DType::kInt32: return fn(TypeTag<std::int32_t>{});
    case DType::kUInt8: return fn(TypeTag<std::uint8_t>{});
    case DType::kBool: return fn(TypeTag<Bool8>{});
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2: break;
  }
  throw Unimplemented(fmt::format("{}: dtype {} is for storage only", op, dtype_name(dtype)));
}

/// Does the same with the float8 types too: for what only moves and converts.
template <typename Fn>
void dispatch_stored(DType dtype, const char* op, Fn&& fn) {
  if (dtype == DType::kFloat8E4M3) return fn(TypeTag<float8_e4m3>{});
  if (dtype == DType::kFloat8E5M2) return fn(TypeTag<float8_e5m2>{});
  dispatch_any(dtype, op, fn);
}

template <typename T>
inline constexpr bool kIsShortFloat =
    std::is_same_v<T, bfloat16> || std::is_same_v<T, float16> || std::is_same_v<T, float8_e4m3> ||
    std::is_same_v<T, float8_e5m2>;

/// Returns the nearest float, except that an inexact result gets an odd last bit: rounding it again
/// to a shorter type gives what rounding the double once would.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value || std::isinf(nearest)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(back) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

/// Returns the value of type From as To: floating values round to nearest even, to integers they
/// are truncated, to bool anything but 0 is 1.
template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<From, Bool8>) {
    return convert<To>(value.byte);
  } else if constexpr (kIsShortFloat<From>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, Bool8>) {
    return Bool8{static_cast<std::uint8_t>(value != From{})};
  } else if constexpr (kIsShortFloat<To>) {
    if constexpr (std::is_same_v<From, float>)
      return To(value);
    else
      return To(round_to_odd(static_cast<double>(value)));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace meshloom::kernels::cpu
