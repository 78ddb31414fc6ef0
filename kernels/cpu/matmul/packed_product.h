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

#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/matmul/packed_plan.h"

namespace meshloom::kernels::cpu {

/// Computes the product of `gemm`, which `plan` was made for, plus `bias` (float32 [n], or null),
/// in y's dtype; sums are float32. Scratch has plan.scratch_bytes() and begins at a cache line.
/// Needs AVX-512 (runs_avx512()).
void packed_product(const Gemm& gemm, const PackedPlan& plan, const float* bias,
                    std::byte* scratch);

}  // namespace meshloom::kernels::cpu
