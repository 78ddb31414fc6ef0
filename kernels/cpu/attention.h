// SPDX-License-Identifier: Apache-2.0
// Flash attention by blocks: the attention calls of Backend on the CPU.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// As Backend::attention.
void attention(const KernelContext&, const AttentionOutputs&, const AttentionInputs&,
               const AttentionOptions&);
/// As Backend::attention_backward.
void attention_backward(const KernelContext&, const AttentionGrads&, const AttentionInputs&,
                        const AttentionOptions&);
/// As Backend::attention_delta.
void attention_delta(const KernelContext&, const TensorView& delta, const TensorView& grad_o,
                     const TensorView& o);

}  // namespace meshloom::kernels::cpu
