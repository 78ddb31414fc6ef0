// SPDX-License-Identifier: Apache-2.0
// Products with scales of rows, columns and result (MatmulOptions::scales).
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// Multiplies with options.scales, which are defined: the product in float32, then each element's
/// factors and bias, each step rounded to float32.
void scaled_matmul(const KernelContext&, const TensorView& y, const TensorView& a,
                   const TensorView& b, const MatmulOptions&);

/// Returns the bytes that it takes of the workspace.
std::size_t scaled_matmul_workspace_bytes(Threads threads, const TensorView& y, const TensorView& a,
                                          const TensorView& b, const MatmulOptions&);

}  // namespace meshloom::kernels::cpu
