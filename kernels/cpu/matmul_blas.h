// SPDX-License-Identifier: Apache-2.0
// Matrix products by OpenBLAS.
#pragma once

#include "kernels/cpu/gemm.h"

namespace meshloom::kernels::cpu {

/// float32 and float64. Threads as LibraryThreads says.
void blas_gemm_f32(const Gemm&);
void blas_gemm_f64(const Gemm&);

}  // namespace meshloom::kernels::cpu
