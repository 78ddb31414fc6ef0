// SPDX-License-Identifier: Apache-2.0
// Copy, cast and fill of strided views: calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::copy.
void copy(const KernelContext&, const TensorView& dst, const TensorView& src);
/// As Backend::fill.
void fill(const KernelContext&, const TensorView& dst, double value);

}  // namespace meshloom::kernels::cpu
