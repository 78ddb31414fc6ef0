// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.h"

#include "kernels/cpu/attention_backward.h"
#include "kernels/cpu/attention_forward.h"
#include "kernels/cpu/attention_reference.h"
#include "kernels/cpu/dispatch.h"

namespace meshloom::kernels::cpu {
namespace {

template <typename T, typename Sum>
void delta_row(const TensorView& delta, const TensorView& grad_o, const TensorView& o,
               std::int64_t b, std::int64_t h, std::int64_t s) {
  const auto at = [&](const TensorView& view) {
    return b * view.stride(0) + h * view.stride(1) + s * view.stride(2);
  };
  const T* go = grad_o.as<T>() + at(grad_o);
  Sum sum = 0;
  const auto add = [&](const auto* out) {
    for (std::int64_t d = 0; d < o.size(3); ++d)
      sum += static_cast<Sum>(go[d * grad_o.stride(3)]) * static_cast<Sum>(out[d * o.stride(3)]);
  };
  if (o.dtype == DType::kFloat32) {
    add(o.as<float>() + at(o));
  } else {
    add(o.as<T>() + at(o));
  }
  delta.as<float>()[at(delta)] = static_cast<float>(sum);
}

template <typename T, typename Sum>
void delta_rows(const KernelContext& context, const TensorView& delta, const TensorView& grad_o,
                const TensorView& o) {
  const std::int64_t heads = o.size(1), queries = o.size(2);
  constexpr std::int64_t kGrain = 64;
  parallel_for(context.threads, o.size(0) * heads * queries, kGrain,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   delta_row<T, Sum>(delta, grad_o, o, row / queries / heads, row / queries % heads,
                                     row % queries);
               });
}

}  // namespace

void attention(const KernelContext& context, const AttentionOutputs& out, const AttentionInputs& in,
               const AttentionOptions& options) {
  if (out.lse.numel() == 0) return;
  // No keys at all, and float64, are no work for tiles.
  if (in.q.dtype == DType::kFloat64 || in.k.size(2) == 0)
    return reference_attention(context, out, in, options);
  attention_forward(context, out, in, options);
}

void attention_backward(const KernelContext& context, const AttentionGrads& grads,
                        const AttentionInputs& in, const AttentionOptions& options) {
  if (in.q.numel() == 0 && in.k.numel() == 0) return;
  if (in.q.dtype == DType::kFloat64 || in.q.numel() == 0 || in.k.numel() == 0)
    return reference_attention_backward(context, grads, in, options);
  attention_backward_tiles(context, grads, in, options);
}

void attention_delta(const KernelContext& context, const TensorView& delta,
                     const TensorView& grad_o, const TensorView& o) {
  if (grad_o.dtype == DType::kFloat64) return delta_rows<double, double>(context, delta, grad_o, o);
  dispatch_float(grad_o.dtype, "attention_delta", [&](auto tag) {
    delta_rows<typename decltype(tag)::type, float>(context, delta, grad_o, o);
  });
}

}  // namespace meshloom::kernels::cpu
