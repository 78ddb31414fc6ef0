// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of one tensor and their gradients: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::unary.
void unary(const KernelContext&, UnaryOp, const TensorView& y, const TensorView& x, double scalar);
/// As Backend::unary_backward.
void unary_backward(const KernelContext&, UnaryOp, const TensorView& dx, const TensorView& dy,
                    const TensorView& x, const TensorView& y, double scalar);

}  // namespace meshloom::kernels::cpu
