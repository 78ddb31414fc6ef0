// SPDX-License-Identifier: Apache-2.0
// Matrix products: Backend::matmul of the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// Does what Backend::matmul does.
void matmul(const KernelContext&, const TensorView& y, const TensorView& a, const TensorView& b,
            const MatmulOptions&);

/// Returns the bytes that matmul takes of the workspace for these views: 0 where the libraries read
/// and write them directly.
std::size_t matmul_workspace_bytes(Threads threads, const TensorView& y, const TensorView& a,
                                   const TensorView& b, const MatmulOptions&);

/// Tells how a product of these views (none of them empty) is made: "few rows", "primitive" and
/// "gemm" read the views as they lie, "panels" converts operands or results, piece by piece, to
/// what a gemm takes.
const char* matmul_route(Threads threads, const TensorView& y, const TensorView& a,
                         const TensorView& b, const MatmulOptions& options);

}  // namespace meshloom::kernels::cpu
