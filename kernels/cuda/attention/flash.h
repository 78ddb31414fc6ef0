// SPDX-License-Identifier: Apache-2.0
// Attention by own kernels: for all that cuDNN does not take.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/attention/attention_table.h"

namespace meshloom::kernels::cuda {

/// Do what Backend::attention and its backward do, for float32, bfloat16, float16 and float64
/// (whose lse and delta may be float64, too), head dims of q and v up to kMostHeadDims each. Spans
/// of positions and documents are in the workspace. The code is kBfloat16 or kAny, as the table
/// says. Throw Unimplemented for anything else, with
/// what was asked.
void flash_attention(const KernelContext&, AttentionCode, const AttentionOutputs&,
                     const AttentionInputs&, const AttentionOptions&);
void flash_attention_backward(const KernelContext&, AttentionCode, const AttentionGrads&,
                              const AttentionInputs&, const AttentionOptions&);

}  // namespace meshloom::kernels::cuda
