// SPDX-License-Identifier: Apache-2.0
// 2^t, sigmoid, SiLU and GELU for results that are rounded to bfloat16, within a relative error of
// 2^-16 before the rounding: 1/128 of what the rounding itself may do. With AVX-512 they take half
// the instructions of simd_math.h; elsewhere they are its functions. Included once per target after
// hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_COARSE_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_COARSE_MATH_H_
#undef MESHLOOM_KERNELS_CPU_COARSE_MATH_H_
#else
#define MESHLOOM_KERNELS_CPU_COARSE_MATH_H_
#endif

#include <hwy/highway.h>

#include "kernels/base/half.h"
#include "kernels/cpu/simd/native_bfloat16.h"
#include "kernels/cpu/simd/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace simd {
namespace coarse {

#if HWY_TARGET == HWY_AVX3
/// Computes 2^t: infinity, and NaN for NaN, included. Its error grows with |t|, to 2^-17 at 128.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2(D d, V t) {
  const V r = distance_to_integer(d, t);
  V p = hn::MulAdd(hn::Set(d, 0.00957010191f), r, hn::Set(d, 0.0559178603f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240247448f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693121815f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.999999261f));
  return scale_by_exp2(d, p, t);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V one_plus_exp2(D d, V t) {
  return hn::Add(hn::Set(d, 1.0f), exp2(d, t));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  return hn::Div(hn::Set(d, 1.0f), one_plus_exp2(d, hn::Mul(x, hn::Set(d, -1.44269504f))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu(D d, V x) {
  return hn::Div(x, one_plus_exp2(d, hn::Mul(x, hn::Set(d, -1.44269504f))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_derivative(D d, V x) {
  return simd::silu_derivative(d, x, sigmoid(d, x));
}

/// -2 u / ln 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), for x2 = min(x^2, 128): beyond, the
/// sigmoid of 2 u is 0 or 1 in float32 anyway, and nothing overflows to infinity times 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_exponent(D d, V x, V x2) {
  return hn::Mul(x, hn::MulAdd(x2, hn::Set(d, -0.102943240f), hn::Set(d, -2.30220819f)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  const V x2 = hn::Min(hn::Mul(x, x), hn::Set(d, 128.0f));
  return hn::Div(x, one_plus_exp2(d, gelu_exponent(d, x, x2)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_derivative(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V x2 = hn::Min(hn::Mul(x, x), hn::Set(d, 128.0f));
  const V s = hn::Div(one, one_plus_exp2(d, gelu_exponent(d, x, x2)));
  const V slope = hn::MulAdd(x2, hn::Set(d, 0.214064449f), hn::Set(d, 1.59576912f));
  return hn::MulAdd(hn::Mul(x, slope), hn::Mul(s, hn::Sub(one, s)), s);
}

/// Computes what the function of this name in simd_math.h computes, by a shorter polynomial, as
/// those below do.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu(D d, V x) {
  const V a = bounded_abs(d, x, 10.0f);
  V t = hn::MulAdd(hn::Set(d, -1.77104323e-06f), a, hn::Set(d, 6.02629334e-05f));
  t = hn::MulAdd(t, a, hn::Set(d, -0.000919493323f));
  t = hn::MulAdd(t, a, hn::Set(d, 0.00846227817f));
  t = hn::MulAdd(t, a, hn::Set(d, -0.0538614206f));
  t = hn::MulAdd(t, a, hn::Set(d, -0.458570004f));
  t = hn::MulAdd(t, a, hn::Set(d, -1.15120459f));
  const V tail = exp2(d, hn::Mul(t, a));
  return hn::NegMulAdd(hn::Mul(a, hn::Set(d, 0.5f)), tail, hn::Max(hn::Zero(d), x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_derivative(D d, V x) {
  const V a = bounded_abs(d, x, 6.0f);
  V s = hn::MulAdd(hn::Set(d, 2.51847105e-05f), a, hn::Set(d, -0.000452655629f));
  s = hn::MulAdd(s, a, hn::Set(d, 0.00356839318f));
  s = hn::MulAdd(s, a, hn::Set(d, -0.016642224f));
  s = hn::MulAdd(s, a, hn::Set(d, 0.05299275f));
  s = hn::MulAdd(s, a, hn::Set(d, -0.127474964f));
  s = hn::MulAdd(s, a, hn::Set(d, 0.248280928f));
  s = hn::MulAdd(s, a, hn::Set(d, -0.797657311f));
  s = hn::MulAdd(s, a, hn::Set(d, 0.499994338f));
  const V normal = exp2(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.72134752f)));
  const V lower = hn::Mul(normal, s);
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), lower, hn::Sub(hn::Set(d, 1.0f), lower));
}
#else
using simd::exp2;
using simd::gelu;
using simd::gelu_derivative;
using simd::gelu_tanh;
using simd::gelu_tanh_derivative;
using simd::sigmoid;
using simd::silu;
using simd::silu_derivative;
#endif

}  // namespace coarse

/// Tells whether the functions of `coarse` are good enough for elements of this type.
template <class T>
inline constexpr bool kCoarseSuffices =
    std::is_same_v<T, bfloat16> || std::is_same_v<T, NativeBFloat16>;

}  // namespace simd
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
