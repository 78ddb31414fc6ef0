// SPDX-License-Identifier: Apache-2.0
// Elementwise functions of several tensors: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::binary.
void binary(const KernelContext&, BinaryOp, const TensorView& y, const TensorView& a,
            const TensorView& b);
/// As Backend::where.
void where(const KernelContext&, const TensorView& y, const TensorView& condition,
           const TensorView& a, const TensorView& b);
/// As Backend::triangle.
void triangle(const KernelContext&, const TensorView& y, const TensorView& x, bool upper,
              std::int64_t diagonal);
/// As Backend::swiglu.
void swiglu(const KernelContext&, const TensorView& y, const TensorView& gate,
            const TensorView& up);
/// As Backend::swiglu_backward.
void swiglu_backward(const KernelContext&, const TensorView& dgate, const TensorView& dup,
                     const TensorView& dy, const TensorView& gate, const TensorView& up);

}  // namespace meshloom::kernels::cpu
