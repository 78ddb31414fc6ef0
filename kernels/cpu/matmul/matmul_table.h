// SPDX-License-Identifier: Apache-2.0
// Which library multiplies: a fixed, versioned table. Nothing is timed at run time, so that the
// same job on the same class of CPU gives the same bits.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/matmul/gemm.h"

namespace meshloom::kernels::cpu {

/// Raised whenever an entry that training uses or the order of a kernel's sums changes, and stored
/// in checkpoints: losses and weights are bitwise comparable within one version.
inline constexpr int kMatmulTableVersion = 7;

enum class MatmulProvider : std::uint8_t {
  kOneDnnSgemm,   ///< float32, oneDNN's BLAS-like entry: no primitive, no extra memory
  kOneDnnMatmul,  ///< a oneDNN matmul primitive, kept in the primitive cache
  kOpenBlas,
  kFewRows,  ///< few_rows_product: results of at most kMostFewRows rows
  kPacked,   ///< packed_product
};

/// Returns the provider for operands of one dtype (float32, bfloat16, float64) in the given shape.
/// bfloat16 operands that the answer is a BLAS for are widened and multiplied in float32.
/// `batch_invariant`: for rows that must not depend on each other (MatmulOptions); the answer for
/// one row then holds for as many as the provider takes.
MatmulProvider choose_matmul_provider(CpuClass cpu_class, DType dtype, const Gemm& gemm,
                                      bool batch_invariant = false);

/// Tells whether it takes bfloat16 operands as they are.
constexpr bool takes_bfloat16(MatmulProvider provider) {
  return provider != MatmulProvider::kOneDnnSgemm && provider != MatmulProvider::kOpenBlas;
}

}  // namespace meshloom::kernels::cpu
