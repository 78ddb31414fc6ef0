// SPDX-License-Identifier: Apache-2.0
// float32 vector functions for Highway kernels: exp, log, tanh, erf, sigmoid, GELU, sine and cosine
// of a turn. Included once per target after hwy/highway.h (the guard toggles). The polynomials are
// minimax fits made for this file; where FMA exists exp, log, tanh and erf stay within 2 ulp
// (tests/unit/kernels/ simd_math_test.cpp). NaN in gives NaN out.
#if defined(MESHLOOM_KERNELS_CPU_SIMD_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_SIMD_MATH_H_
#undef MESHLOOM_KERNELS_CPU_SIMD_MATH_H_
#else
#define MESHLOOM_KERNELS_CPU_SIMD_MATH_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace simd {

namespace hn = hwy::HWY_NAMESPACE;

/// exp(x - n ln 2) for the integer n nearest to x / ln 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_fraction(D d, V x, V n) {
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  V p = hn::MulAdd(hn::Set(d, 1.3814467e-03f), r, hn::Set(d, 8.368781e-03f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1668393e-02f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.666652e-01f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.9999994e-01f));
  return hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
}

/// exp without the checks for overflow: any x <= 88 (softmax has x <= 0), -inf gives 0. Results
/// below 2^-126 are flushed to 0. About 1.5 ulp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_bounded(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; with 127 more these are
  // the exponent field of 2^n.
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V p = exp_fraction(d, x, hn::Sub(shifted, magic));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365402f)), hn::Mul(p, power));
}

/// exp for any x: overflow gives +inf, results below 2^-126 are flushed to 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V p = exp_fraction(d, x, hn::Sub(shifted, magic));
  // Added to the exponent field, since 2^128 itself, which results close below it need, is no
  // float.
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const V result = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  // Max keeps a NaN of its second argument.
  const V low =
      hn::IfThenElse(hn::Ge(x, hn::Set(d, -87.3365402f)), result, hn::Max(hn::Zero(d), x));
  const V inf = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.7228394f)), inf, low);
}

/// Natural logarithm: 0 gives -inf, negative NaN, +inf +inf; subnormals are handled.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const float inf = std::numeric_limits<float>::infinity();
  const auto tiny = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
  const V scaled = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 0x1p23f)), x);
  const V bias = hn::IfThenElseZero(tiny, hn::Set(d, -23.0f));
  // Moves the mantissa to [sqrt(1/2), sqrt(2)).
  const auto bits = hn::Sub(hn::BitCast(di, scaled), hn::Set(di, 0x3f3504f3));
  const V e = hn::Add(hn::ConvertTo(d, hn::ShiftRight<23>(bits)), bias);
  const auto mantissa = hn::Add(hn::And(bits, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3));
  const V f = hn::Sub(hn::BitCast(d, mantissa), hn::Set(d, 1.0f));
  V q = hn::MulAdd(hn::Set(d, -7.636322e-02f), f, hn::Set(d, 1.276366e-01f));
  q = hn::MulAdd(q, f, hn::Set(d, -1.31605e-01f));
  q = hn::MulAdd(q, f, hn::Set(d, 1.4201504e-01f));
  q = hn::MulAdd(q, f, hn::Set(d, -1.6623302e-01f));
  q = hn::MulAdd(q, f, hn::Set(d, 2.0001236e-01f));
  q = hn::MulAdd(q, f, hn::Set(d, -2.5000823e-01f));
  q = hn::MulAdd(q, f, hn::Set(d, 3.333333e-01f));
  const V f2 = hn::Mul(f, f);
  V tail = hn::Mul(hn::Mul(f2, f), q);
  tail = hn::MulAdd(e, hn::Set(d, 1.42860677e-6f), tail);
  tail = hn::NegMulAdd(hn::Set(d, 0.5f), f2, tail);
  V y = hn::MulAdd(e, hn::Set(d, 0.693145752f), hn::Add(f, tail));
  y = hn::IfThenElse(hn::Eq(x, hn::Set(d, inf)), x, y);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, std::numeric_limits<float>::quiet_NaN()),
                     y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Set(d, -inf), y);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V a = hn::Abs(x);
  const V x2 = hn::Mul(x, x);
  V q = hn::MulAdd(hn::Set(d, -5.8951587e-03f), x2, hn::Set(d, 2.0795973e-02f));
  q = hn::MulAdd(q, x2, hn::Set(d, -5.378383e-02f));
  q = hn::MulAdd(q, x2, hn::Set(d, 1.3331924e-01f));
  q = hn::MulAdd(q, x2, hn::Set(d, -3.33333e-01f));
  const V small = hn::MulAdd(hn::Mul(x2, x), q, x);
  const V e = exp(d, hn::Add(a, a));
  const V large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.6f)), small, hn::CopySign(large, x));
}

/// erf for |x| below 0.93, and erfc for a >= 0.93 (0 beyond 4.8, where it is under 2e-11): the two
/// pieces of erf and of the normal distribution.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_near_zero(D d, V x) {
  const V x2 = hn::Mul(x, x);
  V q = hn::MulAdd(hn::Set(d, 8.316753e-05f), x2, hn::Set(d, -8.130006e-04f));
  q = hn::MulAdd(q, x2, hn::Set(d, 5.199906e-03f));
  q = hn::MulAdd(q, x2, hn::Set(d, -2.685894e-02f));
  q = hn::MulAdd(q, x2, hn::Set(d, 1.12836875e-01f));
  q = hn::MulAdd(q, x2, hn::Set(d, -3.7612632e-01f));
  q = hn::MulAdd(q, x2, hn::Set(d, 0.128379166f));
  return hn::MulAdd(x, q, x);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc_tail(D d, V a) {
  // exp(g(a)) with g a fit of log(erfc).
  V g = hn::MulAdd(hn::Set(d, -2.0828527e-05f), a, hn::Set(d, 4.3139257e-04f));
  g = hn::MulAdd(g, a, hn::Set(d, -4.1562505e-03f));
  g = hn::MulAdd(g, a, hn::Set(d, 2.5080604e-02f));
  g = hn::MulAdd(g, a, hn::Set(d, -1.0822037e-01f));
  g = hn::MulAdd(g, a, hn::Set(d, -6.3340086e-01f));
  g = hn::MulAdd(g, a, hn::Set(d, -1.1294883e+00f));
  g = hn::MulAdd(g, a, hn::Set(d, 1.6920391e-04f));
  return hn::IfThenZeroElse(hn::Gt(a, hn::Set(d, 4.8f)), exp_bounded(d, g));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf(D d, V x) {
  const V a = hn::Abs(x);
  const V large = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), erfc_tail(d, a)), x);
  return hn::IfThenElse(hn::Ge(a, hn::Set(d, 0.93f)), large, erf_near_zero(d, x));
}

/// The normal distribution function; its lower tail keeps its relative accuracy.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_cdf(D d, V x) {
  const V half = hn::Set(d, 0.5f);
  const V z = hn::Mul(x, hn::Set(d, 0.707106781f));
  const V a = hn::Abs(z);
  const V tail = hn::Mul(half, erfc_tail(d, a));
  const V large = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
  const V small = hn::MulAdd(half, erf_near_zero(d, z), half);
  return hn::IfThenElse(hn::Ge(a, hn::Set(d, 0.93f)), large, small);
}

/// 1 / (1 + exp(-x)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

/// x / (1 + exp(-x)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), exp(d, hn::Neg(x))));
}

/// s is sigmoid(x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_derivative(D d, V x, V s) {
  const V one = hn::Set(d, 1.0f);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_derivative(D d, V x) {
  return silu_derivative(d, x, sigmoid(d, x));
}

/// GELU by tanh, written as x * sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  const V x2 = hn::Mul(x, x);
  const V minus_2u =
      hn::Mul(x, hn::MulAdd(x2, hn::Set(d, -0.0713548163f), hn::Set(d, -1.59576912f)));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), exp(d, minus_2u)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_derivative(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V x2 = hn::Mul(x, x);
  const V minus_2u =
      hn::Mul(x, hn::MulAdd(x2, hn::Set(d, -0.0713548163f), hn::Set(d, -1.59576912f)));
  const V s = hn::Div(one, hn::Add(one, exp(d, minus_2u)));
  const V slope = hn::MulAdd(x2, hn::Set(d, 0.214064449f), hn::Set(d, 1.59576912f));
  return hn::MulAdd(hn::Mul(x, slope), hn::Mul(s, hn::Sub(one, s)), s);
}

/// GELU by erf.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu(D d, V x) {
  return hn::Mul(x, normal_cdf(d, x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_derivative(D d, V x) {
  const V pdf =
      hn::Mul(hn::Set(d, 0.398942280f), exp_bounded(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f))));
  // x * pdf is 0 at infinity, where the product would be NaN.
  const V tail = hn::IfThenElseZero(hn::Gt(pdf, hn::Zero(d)), hn::Mul(x, pdf));
  return hn::Add(normal_cdf(d, x), tail);
}

/// Sine and cosine of `turns` * 2 pi, turns in [0, 1].
template <class D, class V = hn::Vec<D>>
HWY_INLINE void sincos_turns(D d, V turns, V& sine, V& cosine) {
  const hn::RebindToSigned<D> di;
  const V quarters = hn::Mul(turns, hn::Set(d, 4.0f));
  const V rounded = hn::Round(quarters);
  const V f = hn::Sub(quarters, rounded);
  const V f2 = hn::Mul(f, f);
  V s = hn::MulAdd(hn::Set(d, 1.5819787e-04f), f2, hn::Set(d, -4.6812627e-03f));
  s = hn::MulAdd(s, f2, hn::Set(d, 7.969258e-02f));
  s = hn::MulAdd(s, f2, hn::Set(d, -6.459641e-01f));
  s = hn::Mul(f, hn::MulAdd(s, f2, hn::Set(d, 1.5707964f)));
  V c = hn::MulAdd(hn::Set(d, 9.0396113e-04f), f2, hn::Set(d, -2.0860262e-02f));
  c = hn::MulAdd(c, f2, hn::Set(d, 2.5366923e-01f));
  c = hn::MulAdd(c, f2, hn::Set(d, -1.2337005f));
  c = hn::MulAdd(c, f2, hn::Set(d, 1.0f));
  const auto quadrant = hn::ConvertTo(di, rounded);
  const auto odd = hn::MaskFromVec(hn::BitCast(
      d, hn::VecFromMask(di, hn::Eq(hn::And(quadrant, hn::Set(di, 1)), hn::Set(di, 1)))));
  const V sine_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(quadrant, hn::Set(di, 2))));
  const auto next = hn::Add(quadrant, hn::Set(di, 1));
  const V cosine_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(next, hn::Set(di, 2))));
  sine = hn::Xor(hn::IfThenElse(odd, c, s), sine_sign);
  cosine = hn::Xor(hn::IfThenElse(odd, s, c), cosine_sign);
}

}  // namespace simd
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
