// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: a call of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::rope.
void rope(const KernelContext&, const TensorView& y, const TensorView& x, const RopeOptions&);

}  // namespace meshloom::kernels::cpu
