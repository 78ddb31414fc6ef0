// SPDX-License-Identifier: Apache-2.0
// Matrix products by OpenBLAS.
#pragma once

#include "kernels/cpu/matmul/gemm.h"

namespace meshloom::kernels::cpu {

/// Tells whether the OpenBLAS that was loaded has AVX2 kernels for this CPU. Releases know CPUs by
/// model and fall back to SSE for newer ones, at a fifth of the rate.
bool blas_knows_cpu();

/// Multiplies float32 and float64. Threads as LibraryThreads says.
void blas_gemm_f32(const Gemm&);
void blas_gemm_f64(const Gemm&);

}  // namespace meshloom::kernels::cpu
