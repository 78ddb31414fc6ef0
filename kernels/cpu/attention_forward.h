// SPDX-License-Identifier: Apache-2.0
// Flash attention forward by tiles, for float32, bfloat16 and float16 inputs.
#pragma once

#include "kernels/cpu/attention_problem.h"

namespace meshloom::kernels::cpu {

/// As Backend::attention. Source of the algorithm: Dao, Fu, Ermon, Rudra, Re, "FlashAttention: Fast
/// and Memory-Efficient Exact Attention with IO-Awareness", 2022 (online softmax over key tiles).
void attention_forward(const KernelContext& context, const AttentionOutputs& out,
                       const AttentionInputs& in, const AttentionOptions& options);

}  // namespace meshloom::kernels::cpu
