// SPDX-License-Identifier: Apache-2.0
// Attention row by row in plain loops: the path for float64, and what the fast kernels are tested
// against.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// Does what Backend::attention and Backend::attention_backward do, for every dtype (float64
/// outputs for float64 inputs), in double precision throughout.
void reference_attention(const KernelContext&, const AttentionOutputs&, const AttentionInputs&,
                         const AttentionOptions&);
void reference_attention_backward(const KernelContext&, const AttentionGrads&,
                                  const AttentionInputs&, const AttentionOptions&);

}  // namespace meshloom::kernels::cpu
