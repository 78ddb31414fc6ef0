// SPDX-License-Identifier: Apache-2.0
// The elementwise functions of one tensor and their derivatives, in float or double. For .cu files.
#pragma once

#include <cmath>

#include "kernels/cuda/primitives/gelu.h"
#include "kernels/op_ids.h"

namespace meshloom::kernels::cuda {

template <UnaryOp op>
struct UnaryTag {
  static constexpr UnaryOp kOp = op;
};

/// Calls body(UnaryTag<op>{}), outside of loops over elements.
template <class Body>
__device__ __forceinline__ void dispatch_unary(UnaryOp op, const Body& body) {
  switch (op) {
    case UnaryOp::kNeg: return body(UnaryTag<UnaryOp::kNeg>{});
    case UnaryOp::kExp: return body(UnaryTag<UnaryOp::kExp>{});
    case UnaryOp::kLog: return body(UnaryTag<UnaryOp::kLog>{});
    case UnaryOp::kTanh: return body(UnaryTag<UnaryOp::kTanh>{});
    case UnaryOp::kSqrt: return body(UnaryTag<UnaryOp::kSqrt>{});
    case UnaryOp::kRsqrt: return body(UnaryTag<UnaryOp::kRsqrt>{});
    case UnaryOp::kRelu: return body(UnaryTag<UnaryOp::kRelu>{});
    case UnaryOp::kSigmoid: return body(UnaryTag<UnaryOp::kSigmoid>{});
    case UnaryOp::kSilu: return body(UnaryTag<UnaryOp::kSilu>{});
    case UnaryOp::kGelu: return body(UnaryTag<UnaryOp::kGelu>{});
    case UnaryOp::kGeluTanh: return body(UnaryTag<UnaryOp::kGeluTanh>{});
    case UnaryOp::kPow: return body(UnaryTag<UnaryOp::kPow>{});
    case UnaryOp::kAdd: return body(UnaryTag<UnaryOp::kAdd>{});
    case UnaryOp::kMul: return body(UnaryTag<UnaryOp::kMul>{});
    case UnaryOp::kRsub: return body(UnaryTag<UnaryOp::kRsub>{});
    case UnaryOp::kRdiv: return body(UnaryTag<UnaryOp::kRdiv>{});
  }
}

template <class C>
__device__ __forceinline__ C power(C x, C exponent) {
  if (exponent == C(0)) return C(1);
  if (exponent == C(1)) return x;
  if (exponent == C(2)) return x * x;
  if (exponent == C(3)) return x * x * x;
  if (exponent == C(0.5)) return std::sqrt(x);
  if (exponent == C(-1)) return C(1) / x;
  return std::pow(x, exponent);
}

template <UnaryOp op, class C>
__device__ __forceinline__ C unary_value(C x, C scalar) {
  if constexpr (op == UnaryOp::kNeg) return -x;
  if constexpr (op == UnaryOp::kExp) return std::exp(x);
  if constexpr (op == UnaryOp::kLog) return std::log(x);
  if constexpr (op == UnaryOp::kTanh) return std::tanh(x);
  if constexpr (op == UnaryOp::kSqrt) return std::sqrt(x);
  if constexpr (op == UnaryOp::kRsqrt) return C(1) / std::sqrt(x);
  if constexpr (op == UnaryOp::kRelu) return x < C(0) ? C(0) : x;
  if constexpr (op == UnaryOp::kSigmoid) return sigmoid(x);
  if constexpr (op == UnaryOp::kSilu) return x / (C(1) + std::exp(-x));
  if constexpr (op == UnaryOp::kGelu) return gelu(x);
  if constexpr (op == UnaryOp::kGeluTanh) return gelu_tanh(x);
  if constexpr (op == UnaryOp::kPow) return power(x, scalar);
  if constexpr (op == UnaryOp::kAdd) return x + scalar;
  if constexpr (op == UnaryOp::kMul) return x * scalar;
  if constexpr (op == UnaryOp::kRsub) return scalar - x;
  if constexpr (op == UnaryOp::kRdiv) return scalar / x;
}

/// Whether the derivative is a function of the output; else it is one of the input, or constant.
__host__ __device__ constexpr bool slope_reads_output(UnaryOp op) {
  return op == UnaryOp::kExp || op == UnaryOp::kTanh || op == UnaryOp::kSqrt ||
         op == UnaryOp::kRsqrt || op == UnaryOp::kRelu || op == UnaryOp::kSigmoid;
}

/// The derivative, of the output where slope_reads_output, else of the input.
template <UnaryOp op, class C>
__device__ __forceinline__ C unary_slope(C saved, C scalar) {
  if constexpr (op == UnaryOp::kNeg || op == UnaryOp::kRsub) return C(-1);
  if constexpr (op == UnaryOp::kExp) return saved;
  if constexpr (op == UnaryOp::kLog) return C(1) / saved;
  if constexpr (op == UnaryOp::kTanh) return C(1) - saved * saved;
  if constexpr (op == UnaryOp::kSqrt) return C(0.5) / saved;
  if constexpr (op == UnaryOp::kRsqrt) return C(-0.5) * saved * (saved * saved);
  if constexpr (op == UnaryOp::kRelu) return saved > C(0) ? C(1) : C(0);
  if constexpr (op == UnaryOp::kSigmoid) return saved - saved * saved;
  if constexpr (op == UnaryOp::kSilu) {
    const C s = sigmoid(saved);
    return s * (C(1) + saved * (C(1) - s));
  }
  if constexpr (op == UnaryOp::kGelu) return gelu_slope(saved);
  if constexpr (op == UnaryOp::kGeluTanh) return gelu_tanh_slope(saved);
  if constexpr (op == UnaryOp::kPow)
    return scalar == C(0) ? C(0) : scalar * power(saved, scalar - C(1));
  if constexpr (op == UnaryOp::kAdd) return C(1);
  if constexpr (op == UnaryOp::kMul) return scalar;
  if constexpr (op == UnaryOp::kRdiv) return -(scalar / saved) / saved;
}

}  // namespace meshloom::kernels::cuda
