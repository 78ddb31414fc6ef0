// SPDX-License-Identifier: Apache-2.0
// CUDA's functions of numbers that the C library has not. Approximate ones give the exact result.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

// C's functions without a namespace, as CUDA has them; <cmath> adds the overloads for float.
using std::isfinite;
using std::isinf;
using std::isnan;

#define MESHLOOM_EMULATED_INLINE inline __attribute__((always_inline))

template <class A, class B>
MESHLOOM_EMULATED_INLINE std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmin(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
MESHLOOM_EMULATED_INLINE std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmax(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

MESHLOOM_EMULATED_INLINE float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
MESHLOOM_EMULATED_INLINE double rsqrt(double x) { return 1.0 / std::sqrt(x); }
// glibc declares functions with the other names of these in its headers, hence macros.
#define __logf(x) (::std::log(static_cast<float>(x)))
#define __sinf(x) (::std::sin(static_cast<float>(x)))
#define __cosf(x) (::std::cos(static_cast<float>(x)))
#define __powf(x, y) (::std::pow(static_cast<float>(x), static_cast<float>(y)))
#define __expf(x) (::std::exp(static_cast<float>(x)))
MESHLOOM_EMULATED_INLINE float __fdividef(float a, float b) { return a / b; }
MESHLOOM_EMULATED_INLINE float __frcp_rn(float x) { return 1.0f / x; }
MESHLOOM_EMULATED_INLINE float __fsqrt_rn(float x) { return std::sqrt(x); }
MESHLOOM_EMULATED_INLINE double __dsqrt_rn(double x) { return std::sqrt(x); }
MESHLOOM_EMULATED_INLINE float __fdiv_rn(float a, float b) { return a / b; }
MESHLOOM_EMULATED_INLINE double __ddiv_rn(double a, double b) { return a / b; }
MESHLOOM_EMULATED_INLINE float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
MESHLOOM_EMULATED_INLINE double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
MESHLOOM_EMULATED_INLINE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// Never contracted: the asm hides what the product is used for.
MESHLOOM_EMULATED_INLINE float __fmul_rn(float a, float b) {
  float y = a * b;
  asm("" : "+x"(y));
  return y;
}
MESHLOOM_EMULATED_INLINE double __dmul_rn(double a, double b) {
  double y = a * b;
  asm("" : "+x"(y));
  return y;
}
MESHLOOM_EMULATED_INLINE float __fadd_rn(float a, float b) {
  asm("" : "+x"(a), "+x"(b));
  return a + b;
}
MESHLOOM_EMULATED_INLINE float __fsub_rn(float a, float b) { return __fadd_rn(a, -b); }
MESHLOOM_EMULATED_INLINE double __dadd_rn(double a, double b) {
  asm("" : "+x"(a), "+x"(b));
  return a + b;
}
MESHLOOM_EMULATED_INLINE double __dsub_rn(double a, double b) { return __dadd_rn(a, -b); }

#define MESHLOOM_EMULATED_BITS(NAME, TO, FROM) \
  MESHLOOM_EMULATED_INLINE TO NAME(FROM x) {   \
    static_assert(sizeof(TO) == sizeof(FROM)); \
    return __builtin_bit_cast(TO, x);          \
  }
MESHLOOM_EMULATED_BITS(__float_as_uint, unsigned, float)
MESHLOOM_EMULATED_BITS(__uint_as_float, float, unsigned)
MESHLOOM_EMULATED_BITS(__float_as_int, int, float)
MESHLOOM_EMULATED_BITS(__int_as_float, float, int)
MESHLOOM_EMULATED_BITS(__double_as_longlong, long long, double)
MESHLOOM_EMULATED_BITS(__longlong_as_double, double, long long)
#undef MESHLOOM_EMULATED_BITS

MESHLOOM_EMULATED_INLINE float __int2float_rn(int x) { return static_cast<float>(x); }
MESHLOOM_EMULATED_INLINE float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
MESHLOOM_EMULATED_INLINE int __float2int_rz(float x) { return static_cast<int>(x); }
MESHLOOM_EMULATED_INLINE float __double2float_rn(double x) { return static_cast<float>(x); }
MESHLOOM_EMULATED_INLINE unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}
MESHLOOM_EMULATED_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
MESHLOOM_EMULATED_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
MESHLOOM_EMULATED_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
MESHLOOM_EMULATED_INLINE int __ffs(int x) { return __builtin_ffs(x); }
MESHLOOM_EMULATED_INLINE int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}

// Hints to caches say nothing here.
template <class T>
MESHLOOM_EMULATED_INLINE T __ldg(const T* from) {
  return *from;
}
template <class T>
MESHLOOM_EMULATED_INLINE T __ldcs(const T* from) {
  return *from;
}
template <class T>
MESHLOOM_EMULATED_INLINE void __stcs(T* to, T value) {
  *to = value;
}
#undef MESHLOOM_EMULATED_INLINE
