// SPDX-License-Identifier: Apache-2.0
// Matrix products: Backend::matmul of the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::matmul.
void matmul(const KernelContext&, const TensorView& y, const TensorView& a, const TensorView& b,
            const MatmulOptions&);

/// What matmul takes of the workspace for these views: 0 where the libraries read and write them
/// directly.
std::size_t matmul_workspace_bytes(Threads threads, const TensorView& y, const TensorView& a,
                                   const TensorView& b, const MatmulOptions&);

}  // namespace meshloom::kernels::cpu
