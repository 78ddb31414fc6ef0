// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, with and without the residual add before: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::norm.
void norm(const KernelContext&, const NormViews&, const NormOptions&);
/// As Backend::norm_backward.
void norm_backward(const KernelContext&, const NormGrads&);

}  // namespace meshloom::kernels::cpu
