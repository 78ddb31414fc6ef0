// SPDX-License-Identifier: Apache-2.0
// float32 vector functions for Highway kernels: exp, exp2, log, tanh, sigmoid, GELU, sine and
// cosine of a turn. Included once per target after hwy/highway.h (the guard toggles). The
// polynomials are minimax fits made for this file; where FMA exists exp, exp2, log and tanh stay
// within 2 ulp (tests/unit/kernels/cpu/simd_math_test.cpp). NaN in gives NaN out.
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

/// Computes exp(x - n ln 2) for the integer n nearest to x / ln 2.
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

/// Computes exp without the checks for overflow: any x <= 88 (softmax has x <= 0), -inf gives 0.
/// Results below 2^-126 are flushed to 0. About 1.5 ulp.
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

/// Computes exp for any x: overflow gives +inf, results below 2^-126 are flushed to 0.
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

/// Computes 2^r for r in [-1/2, 1/2], within 2^-24.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_fraction(D d, V r) {
  V p = hn::MulAdd(hn::Set(d, 0.000155946575f), r, hn::Set(d, 0.00134066434f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.00961769279f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0555031039f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240226522f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693147242f));
  return hn::MulAdd(p, r, hn::Set(d, 1.0f));
}

#if HWY_TARGET == HWY_AVX3
/// Returns t less the nearest integer, 0 for infinity.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V distance_to_integer(D, V t) {
  return V{_mm512_reduce_ps(t.raw, 0)};
}
/// x * 2^round(t): over- and underflow are known to it.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V scale_by_exp2(D, V x, V t) {
  return V{_mm512_scalef_ps(x.raw, hn::Round(t).raw)};
}

/// Computes 2^t for any t: overflow gives +inf. About 1.5 ulp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2(D d, V t) {
  return scale_by_exp2(d, exp2_fraction(d, distance_to_integer(d, t)), t);
}
#else
/// Computes 2^t for any t: +inf from 127.5 on, results below 2^-126 are flushed to 0. About 1.5
/// ulp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2(D d, V t) {
  const hn::RebindToSigned<D> di;
  // It goes as in exp_bounded; at 128 the exponent field is that of infinity. Min keeps a NaN of
  // its second argument.
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  const V bounded = hn::Min(hn::Set(d, 128.0f), t);
  const V shifted = hn::Add(bounded, magic);
  const V p = exp2_fraction(d, hn::Sub(bounded, hn::Sub(shifted, magic)));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(t, hn::Set(d, -126.0f)), hn::Mul(p, power));
}
#endif

/// Computes the natural logarithm: 0 gives -inf, negative NaN, +inf +inf; subnormals are handled.
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

/// Computes GELU by tanh, written as x * sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
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

/// Returns min(|x|, most); a NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V bounded_abs(D d, V x, float most) {
  return hn::Min(hn::Set(d, most), hn::Abs(x));
}

/// Computes GELU by erf: max(x, 0) - a Phi(-a) with a = |x|, where Phi(-a) is half of 2^t with t a
/// fit of log2(2 Phi(-a)). From 10 on, where the product is 1e-22, a stays 10.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu(D d, V x) {
  const V a = bounded_abs(d, x, 10.0f);
  V t = hn::MulAdd(hn::Set(d, 1.80815851e-09f), a, hn::Set(d, -7.23840614e-08f));
  t = hn::MulAdd(t, a, hn::Set(d, 1.27603005e-06f));
  t = hn::MulAdd(t, a, hn::Set(d, -1.29142327e-05f));
  t = hn::MulAdd(t, a, hn::Set(d, 8.03193179e-05f));
  t = hn::MulAdd(t, a, hn::Set(d, -0.000277206942f));
  t = hn::MulAdd(t, a, hn::Set(d, -2.72563721e-05f));
  t = hn::MulAdd(t, a, hn::Set(d, 0.00699968683f));
  t = hn::MulAdd(t, a, hn::Set(d, -0.0524865985f));
  t = hn::MulAdd(t, a, hn::Set(d, -0.459203839f));
  t = hn::MulAdd(t, a, hn::Set(d, -1.15110624f));
  const V tail = exp2(d, hn::Mul(t, a));
  // Max keeps a NaN of its second argument.
  return hn::NegMulAdd(hn::Mul(a, hn::Set(d, 0.5f)), tail, hn::Max(hn::Zero(d), x));
}

/// Computes the derivative of gelu from that at -|x|, which is exp(-x^2 / 2) times a polynomial;
/// the derivatives at x and -x add up to 1. From 6 on, where it is within 1e-7 of 0 or 1, the
/// polynomial is that at 6.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_derivative(D d, V x) {
  const V a = bounded_abs(d, x, 6.0f);
  V s = hn::MulAdd(hn::Set(d, 3.86123666e-08f), a, hn::Set(d, -1.13828264e-06f));
  s = hn::MulAdd(s, a, hn::Set(d, 1.5198154e-05f));
  s = hn::MulAdd(s, a, hn::Set(d, -0.00012291802f));
  s = hn::MulAdd(s, a, hn::Set(d, 0.000683219987f));
  s = hn::MulAdd(s, a, hn::Set(d, -0.00282883039f));
  s = hn::MulAdd(s, a, hn::Set(d, 0.00930722803f));
  s = hn::MulAdd(s, a, hn::Set(d, -0.0257086828f));
  s = hn::MulAdd(s, a, hn::Set(d, 0.0620276965f));
  s = hn::MulAdd(s, a, hn::Set(d, -0.132825539f));
  s = hn::MulAdd(s, a, hn::Set(d, 0.249972269f));
  s = hn::MulAdd(s, a, hn::Set(d, -0.797882497f));
  s = hn::MulAdd(s, a, hn::Set(d, 0.5f));
  const V normal = exp2(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.72134752f)));
  const V lower = hn::Mul(normal, s);
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), lower, hn::Sub(hn::Set(d, 1.0f), lower));
}

/// Computes sine and cosine of `turns` * 2 pi, turns in [0, 1].
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
