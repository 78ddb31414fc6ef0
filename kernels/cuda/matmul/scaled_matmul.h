// SPDX-License-Identifier: Apache-2.0
// Products with scales of rows, columns and result (MatmulOptions::scales).
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cuda {

/// Multiplies as Backend::matmul does with scales, which are defined; y has elements. `device` and
/// `copies` as Product has them.
void scaled_matmul(Backend& copies, int device, const KernelContext& context, const TensorView& y,
                   const TensorView& a, const TensorView& b, const MatmulOptions& options);

}  // namespace meshloom::kernels::cuda
