// SPDX-License-Identifier: Apache-2.0
// Op ids of the compute interface in kernels/backend.h, apart from its options so that device code
// can include them.
#pragma once

#include <cstdint>

namespace meshloom::kernels {

enum class UnaryOp : std::uint8_t {
  kNeg,
  kExp,
  kLog,
  kTanh,
  kSqrt,
  kRsqrt,
  kRelu,
  kSigmoid,
  kSilu,
  kGelu,
  kGeluTanh,
  kPow,   ///< x ^ scalar
  kAdd,   ///< x + scalar
  kMul,   ///< x * scalar
  kRsub,  ///< scalar - x
  kRdiv,  ///< scalar / x
};

enum class BinaryOp : std::uint8_t { kAdd, kSub, kMul, kDiv };

enum class ReduceOp : std::uint8_t { kSum, kMean, kAmax, kVar };

}  // namespace meshloom::kernels
