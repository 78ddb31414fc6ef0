// SPDX-License-Identifier: Apache-2.0
// One matrix product in the form libraries take: what matmul.cpp breaks every call into.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

namespace meshloom::kernels::cpu {

/// GemmOperand is a matrix whose rows are dense with leading dimension `ld`; `transposed`: its
/// columns are.
struct GemmOperand {
  const void* data = nullptr;
  std::int64_t ld = 0;
  bool transposed = false;
};

/// y [m, n] (dense rows, leading dimension ldy) = alpha * a [m, k] b [k, n] + beta * y.
/// All sizes are at least 1; beta is 0 or 1; leading dimensions are at least the dense length.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  GemmOperand a, b;
  void* y = nullptr;
  std::int64_t ldy = 0;
  float alpha = 1.0f;
  float beta = 0.0f;
};

}  // namespace meshloom::kernels::cpu
