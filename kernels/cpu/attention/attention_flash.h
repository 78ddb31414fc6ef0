// SPDX-License-Identifier: Apache-2.0
// Flash attention by tiles, for float32, bfloat16 and float16 inputs.
#pragma once

#include "kernels/cpu/attention/attention_problem.h"

namespace meshloom::kernels::cpu {

/// Does what Backend::attention does. Source of the algorithm: Dao, Fu, Ermon, Rudra, Re,
/// "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", 2022 (online
/// softmax over key tiles).
void attention_forward(const KernelContext& context, const AttentionOutputs& out,
                       const AttentionInputs& in, const AttentionOptions& options);

/// Does what Backend::attention_backward does: probabilities are computed again from lse, five
/// products a tile. Work is split over (batch, kv head) and, where those are too few for the
/// threads, over stripes of keys whose dq are summed in stripe order; so bits depend on shapes and
/// thread count alone.
void attention_backward_tiles(const KernelContext& context, const AttentionGrads& grads,
                              const AttentionInputs& in, const AttentionOptions& options);

}  // namespace meshloom::kernels::cpu
