// SPDX-License-Identifier: Apache-2.0
// One struct per elementwise function: its value and its derivative, on float32 vectors. Included
// once per target after hwy/highway.h (the guard toggles).
#if defined(MESHLOOM_KERNELS_CPU_UNARY_OPS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MESHLOOM_KERNELS_CPU_UNARY_OPS_H_
#undef MESHLOOM_KERNELS_CPU_UNARY_OPS_H_
#else
#define MESHLOOM_KERNELS_CPU_UNARY_OPS_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "kernels/cpu/simd/coarse_math.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/simd_math.h"
#include "kernels/options.h"

HWY_BEFORE_NAMESPACE();
namespace meshloom::kernels::cpu {
namespace HWY_NAMESPACE {
namespace simd {

using UnaryV = hn::Vec<FloatTag>;

/// value(x) = op(x); slope(x, y) = op'(x) where y = op(x).
template <UnaryOp op>
struct UnaryFunction;

template <>
struct UnaryFunction<UnaryOp::kNeg> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return hn::Neg(x); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV) const { return hn::Set(d, -1.0f); }
};

template <>
struct UnaryFunction<UnaryOp::kExp> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return exp(d, x); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV y) const { return y; }
};

template <>
struct UnaryFunction<UnaryOp::kLog> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return log(d, x); }
  HWY_INLINE UnaryV slope(UnaryV x, UnaryV) const { return hn::Div(hn::Set(d, 1.0f), x); }
};

template <>
struct UnaryFunction<UnaryOp::kTanh> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return tanh(d, x); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV y) const { return hn::NegMulAdd(y, y, hn::Set(d, 1.0f)); }
};

template <>
struct UnaryFunction<UnaryOp::kSqrt> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return hn::Sqrt(x); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV y) const { return hn::Div(hn::Set(d, 0.5f), y); }
};

template <>
struct UnaryFunction<UnaryOp::kRsqrt> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV y) const {
    return hn::Mul(hn::Mul(hn::Set(d, -0.5f), y), hn::Mul(y, y));
  }
};

template <>
struct UnaryFunction<UnaryOp::kRelu> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV y) const {
    return hn::IfThenElseZero(hn::Gt(y, hn::Zero(d)), hn::Set(d, 1.0f));
  }
};

template <>
struct UnaryFunction<UnaryOp::kSigmoid> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return sigmoid(d, x); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV y) const { return hn::NegMulAdd(y, y, y); }
};

template <>
struct UnaryFunction<UnaryOp::kSilu> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return silu(d, x); }
  HWY_INLINE UnaryV slope(UnaryV x, UnaryV) const { return silu_derivative(d, x); }
};

template <>
struct UnaryFunction<UnaryOp::kGelu> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return gelu(d, x); }
  HWY_INLINE UnaryV slope(UnaryV x, UnaryV) const { return gelu_derivative(d, x); }
};

template <>
struct UnaryFunction<UnaryOp::kGeluTanh> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return gelu_tanh(d, x); }
  HWY_INLINE UnaryV slope(UnaryV x, UnaryV) const { return gelu_tanh_derivative(d, x); }
};

template <>
struct UnaryFunction<UnaryOp::kPow> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV power(UnaryV x, float exponent) const {
    if (exponent == 0.0f) return hn::Set(d, 1.0f);
    if (exponent == 1.0f) return x;
    if (exponent == 2.0f) return hn::Mul(x, x);
    if (exponent == 3.0f) return hn::Mul(hn::Mul(x, x), x);
    if (exponent == 0.5f) return hn::Sqrt(x);
    if (exponent == -1.0f) return hn::Div(hn::Set(d, 1.0f), x);
    alignas(HWY_MAX_BYTES) float lanes[kMaxLanes];
    hn::Store(x, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = std::pow(lanes[i], exponent);
    return hn::Load(d, lanes);
  }
  HWY_INLINE UnaryV value(UnaryV x) const { return power(x, scalar); }
  HWY_INLINE UnaryV slope(UnaryV x, UnaryV) const {
    if (scalar == 0.0f) return hn::Zero(d);
    return hn::Mul(hn::Set(d, scalar), power(x, scalar - 1.0f));
  }
};

template <>
struct UnaryFunction<UnaryOp::kAdd> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return hn::Add(x, hn::Set(d, scalar)); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV) const { return hn::Set(d, 1.0f); }
};

template <>
struct UnaryFunction<UnaryOp::kMul> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return hn::Mul(x, hn::Set(d, scalar)); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV) const { return hn::Set(d, scalar); }
};

template <>
struct UnaryFunction<UnaryOp::kRsub> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return hn::Sub(hn::Set(d, scalar), x); }
  HWY_INLINE UnaryV slope(UnaryV, UnaryV) const { return hn::Set(d, -1.0f); }
};

template <>
struct UnaryFunction<UnaryOp::kRdiv> {
  FloatTag d;
  float scalar;
  HWY_INLINE UnaryV value(UnaryV x) const { return hn::Div(hn::Set(d, scalar), x); }
  HWY_INLINE UnaryV slope(UnaryV x, UnaryV y) const { return hn::Neg(hn::Div(y, x)); }
};

/// It does the same for results that are rounded to bfloat16.
template <UnaryOp op>
struct CoarseFunction;

template <>
struct CoarseFunction<UnaryOp::kSigmoid> : UnaryFunction<UnaryOp::kSigmoid> {
  HWY_INLINE UnaryV value(UnaryV x) const { return coarse::sigmoid(d, x); }
};

template <>
struct CoarseFunction<UnaryOp::kSilu> {
  FloatTag d;
  HWY_INLINE UnaryV value(UnaryV x) const { return coarse::silu(d, x); }
  HWY_INLINE UnaryV slope(UnaryV x, UnaryV) const { return coarse::silu_derivative(d, x); }
};

template <>
struct CoarseFunction<UnaryOp::kGelu> {
  FloatTag d;
  HWY_INLINE UnaryV value(UnaryV x) const { return coarse::gelu(d, x); }
  HWY_INLINE UnaryV slope(UnaryV x, UnaryV) const { return coarse::gelu_derivative(d, x); }
};

template <>
struct CoarseFunction<UnaryOp::kGeluTanh> {
  FloatTag d;
  HWY_INLINE UnaryV value(UnaryV x) const { return coarse::gelu_tanh(d, x); }
  HWY_INLINE UnaryV slope(UnaryV x, UnaryV) const { return coarse::gelu_tanh_derivative(d, x); }
};

/// Calls fn(UnaryFunction<op>), or CoarseFunction<op> where one exists and results are of a type T
/// that it is good enough for.
template <typename T, typename Fn>
HWY_INLINE void dispatch_unary(UnaryOp op, float scalar, const Fn& fn) {
  if constexpr (kCoarseSuffices<T>) {
    if (op == UnaryOp::kSigmoid) return fn(CoarseFunction<UnaryOp::kSigmoid>{});
    if (op == UnaryOp::kSilu) return fn(CoarseFunction<UnaryOp::kSilu>{});
    if (op == UnaryOp::kGelu) return fn(CoarseFunction<UnaryOp::kGelu>{});
    if (op == UnaryOp::kGeluTanh) return fn(CoarseFunction<UnaryOp::kGeluTanh>{});
  }
  switch (op) {
    case UnaryOp::kNeg: return fn(UnaryFunction<UnaryOp::kNeg>{{}, scalar});
    case UnaryOp::kExp: return fn(UnaryFunction<UnaryOp::kExp>{{}, scalar});
    case UnaryOp::kLog: return fn(UnaryFunction<UnaryOp::kLog>{{}, scalar});
    case UnaryOp::kTanh: return fn(UnaryFunction<UnaryOp::kTanh>{{}, scalar});
    case UnaryOp::kSqrt: return fn(UnaryFunction<UnaryOp::kSqrt>{{}, scalar});
    case UnaryOp::kRsqrt: return fn(UnaryFunction<UnaryOp::kRsqrt>{{}, scalar});
    case UnaryOp::kRelu: return fn(UnaryFunction<UnaryOp::kRelu>{{}, scalar});
    case UnaryOp::kSigmoid: return fn(UnaryFunction<UnaryOp::kSigmoid>{{}, scalar});
    case UnaryOp::kSilu: return fn(UnaryFunction<UnaryOp::kSilu>{{}, scalar});
    case UnaryOp::kGelu: return fn(UnaryFunction<UnaryOp::kGelu>{{}, scalar});
    case UnaryOp::kGeluTanh: return fn(UnaryFunction<UnaryOp::kGeluTanh>{{}, scalar});
    case UnaryOp::kPow: return fn(UnaryFunction<UnaryOp::kPow>{{}, scalar});
    case UnaryOp::kAdd: return fn(UnaryFunction<UnaryOp::kAdd>{{}, scalar});
    case UnaryOp::kMul: return fn(UnaryFunction<UnaryOp::kMul>{{}, scalar});
    case UnaryOp::kRsub: return fn(UnaryFunction<UnaryOp::kRsub>{{}, scalar});
    case UnaryOp::kRdiv: return fn(UnaryFunction<UnaryOp::kRdiv>{{}, scalar});
  }
}

}  // namespace simd
}  // namespace HWY_NAMESPACE
}  // namespace meshloom::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
