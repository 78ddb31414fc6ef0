// SPDX-License-Identifier: Apache-2.0
// A few rows times a large matrix, as generation does for every token: bound by reading the matrix
// once, which libraries' products do at a quarter to half of the memory's rate.
#pragma once

#include "kernels/base/parallel_for.h"
#include "kernels/cpu/matmul/gemm.h"

namespace meshloom::kernels::cpu {

inline constexpr std::int64_t kMostFewRows = 8;

/// y [m, n] (float32) = a [m, k] b [k, n] with 1 <= m <= kMostFewRows, alpha 1 and beta 0; a's rows
/// are dense, b as it lies. Operands are float32, or bfloat16 where the CPU has dot products of it
/// (bfloat16_dot_products()); then a begins at a multiple of 4 bytes and its ld is even. A row's
/// result depends neither on the other rows nor on the threads.
void few_rows_product(Threads threads, DType operands, const Gemm& gemm);

}  // namespace meshloom::kernels::cpu
