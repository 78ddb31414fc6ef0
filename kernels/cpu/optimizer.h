// SPDX-License-Identifier: Apache-2.0
// Fused optimizer steps over all parameters: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::clip_factor.
void clip_factor(const TensorView& norm, const TensorView& factor, const TensorView& sum_of_squares,
                 double max_norm);
/// As Backend::adam_step.
void adam_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
               const AdamOptions&);
/// As Backend::sgd_step.
void sgd_step(const KernelContext&, std::span<const OptimizerTensor>, const StepScalars&,
              const SgdOptions&);

}  // namespace meshloom::kernels::cpu
