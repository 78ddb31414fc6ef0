// SPDX-License-Identifier: Apache-2.0
// Large matrix products with AVX-512, of float32 or of bfloat16 by its dot products, with a result
// that depends on nothing but the values: neither threads nor the rows and columns that are
// computed beside an element change its bits.
//
// The loops are those of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
// (ACM TOMS 34(3), 2008): blocks of b are packed for the second-level cache, panels of 8 rows of a
// stay in the first, sums in registers.
#pragma once

#include <cstddef>

#include "kernels/base/parallel_for.h"
#include "kernels/cpu/gemm.h"

namespace meshloom::kernels::cpu {

/// Dtypes of a product: operands are float32, or bfloat16 where the CPU has dot products of it
/// (bfloat16_dot_products()); y is float32 or, of bfloat16 operands, bfloat16.
struct PackedTypes {
  DType operands = DType::kFloat32, y = DType::kFloat32;
};

/// What packed_product needs as scratch.
std::size_t packed_product_scratch_bytes(const Gemm& gemm, const PackedTypes& types,
                                         Threads threads);

/// The product of `gemm` plus `bias` (float32 [n], or null), in y's dtype; sums are float32. beta
/// is 0 where y is bfloat16. Scratch begins at a cache line. Needs AVX-512 (runs_avx512()).
void packed_product(const Gemm& gemm, const PackedTypes& types, const float* bias, Threads threads,
                    std::byte* scratch);

}  // namespace meshloom::kernels::cpu
