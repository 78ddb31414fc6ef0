// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax over the last dim: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::softmax.
void softmax(const KernelContext&, const TensorView& y, const TensorView& x, bool log);
/// As Backend::softmax_backward.
void softmax_backward(const KernelContext&, const TensorView& dx, const TensorView& dy,
                      const TensorView& y, bool log);

}  // namespace meshloom::kernels::cpu
