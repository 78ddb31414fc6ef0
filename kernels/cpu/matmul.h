// SPDX-License-Identifier: Apache-2.0
// Matrix products: Backend::matmul of the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::matmul.
void matmul(const KernelContext&, const TensorView& y, const TensorView& a, const TensorView& b,
            const MatmulOptions&);

}  // namespace meshloom::kernels::cpu
