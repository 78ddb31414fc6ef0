// SPDX-License-Identifier: Apache-2.0
// Which code takes an attention call of Backend on the CPU: tiles, one query or the reference.
#include "kernels/cpu/cpu_backend.h"

#include "kernels/cpu/attention/attention_flash.h"
#include "kernels/cpu/attention/attention_one_query.h"
#include "kernels/cpu/attention/attention_reference.h"

namespace meshloom::kernels::cpu {

void CpuBackend::attention(const KernelContext& context, const AttentionOutputs& out,
                           const AttentionInputs& in, const AttentionOptions& options) {
  if (out.lse.numel() == 0) return;
  // No keys at all, and float64, are no work for tiles.
  if (in.q.dtype == DType::kFloat64 || in.k.size(2) == 0)
    return reference_attention(context, out, in, options);
  if (is_one_query(out, in, options)) return attention_one_query(context, out, in, options);
  attention_forward(context, out, in, options);
}

void CpuBackend::attention_backward(const KernelContext& context, const AttentionGrads& grads,
                                    const AttentionInputs& in, const AttentionOptions& options) {
  if (in.q.numel() == 0 && in.k.numel() == 0) return;
  if (in.q.dtype == DType::kFloat64 || in.q.numel() == 0 || in.k.numel() == 0)
    return reference_attention_backward(context, grads, in, options);
  attention_backward_tiles(context, grads, in, options);
}

}  // namespace meshloom::kernels::cpu
