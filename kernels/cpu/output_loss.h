// SPDX-License-Identifier: Apache-2.0
// Output projection and cross entropy in one call: Backend::linear_cross_entropy of the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::linear_cross_entropy.
void linear_cross_entropy(const KernelContext&, const TensorView& losses, const TensorView& dhidden,
                          const TensorView& dweight, const TensorView& dbias,
                          const TensorView& hidden, const TensorView& weight,
                          const TensorView& bias, const TensorView& targets,
                          const CrossEntropyOptions&, bool accumulate_params);

}  // namespace meshloom::kernels::cpu
