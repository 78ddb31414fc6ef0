// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/attention_table.h"

namespace meshloom::kernels::cuda {
namespace {

// Whether a call has one query a batch row, which sees every key, and nothing changes its scores.
bool is_one_query(const AttentionOutputs& out, const AttentionInputs& in,
                  const AttentionOptions& options) {
  if (in.q.size(2) != 1 || out.carry || options.query_positions.defined() ||
      options.key_positions.defined() || options.query_documents.defined() ||
      options.bias.defined() || options.alibi_slopes.defined() || options.dropout_p > 0.0f)
    return false;
  const std::int64_t first = options.key_offset - options.query_offset;
  const std::int64_t last = first + in.k.size(2) - 1;
  const std::int64_t right = options.is_causal ? 0 : options.window_right;
  return (options.window_left < 0 || first >= -options.window_left) && (right < 0 || last <= right);
}

AttentionCode flash_code(DType dtype) {
  return dtype == DType::kBFloat16 ? AttentionCode::kBfloat16 : AttentionCode::kAny;
}

}  // namespace

const char* attention_code_name(AttentionCode code) {
  switch (code) {
    case AttentionCode::kNone: return "nothing to compute";
    case AttentionCode::kCudnn: return "cuDNN";
    case AttentionCode::kOneQuery: return "own, one query";
    case AttentionCode::kBfloat16: return "own, tensor cores";
    case AttentionCode::kAny: return "own, plain products";
  }
  return "";
}

AttentionChoice choose_attention(const AttentionOutputs& out, const AttentionInputs& in,
                                 const AttentionOptions& options) {
  if (out.lse.numel() == 0 || in.k.size(2) == 0) return {};
  AttentionChoice choice;
  choice.sdpa = choose_sdpa(out, in, options);
  choice.otherwise =
      is_one_query(out, in, options) ? AttentionCode::kOneQuery : flash_code(in.q.dtype);
  choice.code = choice.sdpa.shape ? AttentionCode::kCudnn : choice.otherwise;
  return choice;
}

AttentionChoice choose_attention(const AttentionGrads& grads, const AttentionInputs& in,
                                 const AttentionOptions& options) {
  if (in.q.numel() == 0 || in.k.numel() == 0 || in.v.numel() == 0) return {};
  AttentionChoice choice;
  choice.sdpa = choose_sdpa(grads, in, options);
  choice.otherwise = flash_code(in.q.dtype);
  choice.code = choice.sdpa.shape ? AttentionCode::kCudnn : choice.otherwise;
  return choice;
}

}  // namespace meshloom::kernels::cuda
