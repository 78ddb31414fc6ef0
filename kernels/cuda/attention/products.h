// SPDX-License-Identifier: Apache-2.0
// Attention by products of matrices around an own softmax: for all that cuDNN does not take.
#pragma once

#include "kernels/backend.h"

namespace meshloom::kernels::cuda {

/// Do what Backend::attention and its backward do, for float32, bfloat16, float16 and
/// float64 (whose lse and delta may be float64, too). `backend` and `device` are where the views
/// lie. Scores of some heads at a time are in the workspace: at most kMostScoreBytes, or one
/// query's.
void product_attention(Backend& backend, int device, const KernelContext&, const AttentionOutputs&,
                       const AttentionInputs&, const AttentionOptions&);
void product_attention_backward(Backend& backend, int device, const KernelContext&,
                                const AttentionGrads&, const AttentionInputs&,
                                const AttentionOptions&);

inline constexpr std::int64_t kMostScoreBytes = std::int64_t{512} << 20;

}  // namespace meshloom::kernels::cuda
