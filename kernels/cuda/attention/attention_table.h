// SPDX-License-Identifier: Apache-2.0
// Which code computes an attention call on a device. No CUDA in it: benchmarks print it for calls
// of any shape.
#pragma once

#include "kernels/cuda/attention/sdpa_rule.h"

namespace meshloom::kernels::cuda {

/// Counts changes of who computes what: results of two versions may differ in their last bits.
inline constexpr int kAttentionTableVersion = 1;

enum class AttentionCode : std::uint8_t {
  kNone,      ///< there is nothing to compute: no key
  kCudnn,     ///< the plan of `sdpa`; where cuDNN cannot build it, what `otherwise` says
  kOneQuery,  ///< one query a batch row that sees every key
  kBfloat16,  ///< own kernels on tensor cores
  kAny,       ///< own kernels for every dtype
};
const char* attention_code_name(AttentionCode code);

struct AttentionChoice {
  AttentionCode code = AttentionCode::kNone;
  AttentionCode otherwise = AttentionCode::kNone;
  SdpaChoice sdpa;
};
AttentionChoice choose_attention(const AttentionOutputs&, const AttentionInputs&,
                                 const AttentionOptions&);
AttentionChoice choose_attention(const AttentionGrads&, const AttentionInputs&,
                                 const AttentionOptions&);

}  // namespace meshloom::kernels::cuda
