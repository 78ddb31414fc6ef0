// SPDX-License-Identifier: Apache-2.0
// Reductions over any dims: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::reduce.
void reduce(const KernelContext&, ReduceOp, const TensorView& y, const TensorView& x,
            double correction);
/// As Backend::sum_of_squares.
void sum_of_squares(const KernelContext&, const TensorView& out, std::span<const TensorView> xs,
                    bool accumulate);
/// As Backend::first_nonfinite.
void first_nonfinite(const KernelContext&, const TensorView& index, std::span<const TensorView> xs);

}  // namespace meshloom::kernels::cpu
