// SPDX-License-Identifier: Apache-2.0
// Which code takes an attention call on a device: cuDNN where the rule allows it and it can, else
// products around an own softmax.
#include <limits>
#include <utility>

#include "kernels/cuda/attention/attention_delta_launch.h"
#include "kernels/cuda/attention/products.h"
#include "kernels/cuda/attention/sdpa_plan.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/cuda/runtime/call_log.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

SdpaPlan* sdpa_plan(int device, const std::optional<SdpaShape>& shape) {
  // Kept until the process ends: the driver may be gone when statics are destroyed.
  static auto* const plans = new PlanCache<std::pair<int, SdpaShape>, SdpaPlan>;
  if (!shape) return nullptr;
  return plans->find_or_create({device, *shape}, [&] { return create_sdpa_plan(device, *shape); });
}

void run_plan(const KernelContext& context, SdpaPlan& plan, const SdpaRun& run) {
  const std::span<std::byte> scratch =
      reserve_scratch(context, scratch_piece(plan.workspace_bytes()), "attention");
  call_log().add("attention");
  plan.run(stream_of(context), run, scratch.data());
}

}  // namespace

void CudaBackend::attention(const KernelContext& context, const AttentionOutputs& out,
                            const AttentionInputs& in, const AttentionOptions& options) {
  if (out.lse.numel() == 0) return;
  if (!dtype_is_floating(in.q.dtype))
    not_built(fmt::format("attention of {}", dtype_name(in.q.dtype)));
  if (in.k.size(2) == 0) {  // nothing is seen
    if (out.carry) return;
    fill(context, out.o, 0.0);
    return fill(context, out.lse, -std::numeric_limits<double>::infinity());
  }
  if (SdpaPlan* plan = sdpa_plan(index_, sdpa_shape(out, in, options))) {
    SdpaRun run;
    run.q = in.q.data;
    run.k = in.k.data;
    run.v = in.v.data;
    run.o = out.o.data;
    run.lse = out.lse.data;
    return run_plan(context, *plan, run);
  }
  product_attention(*this, index_, context, out, in, options);
}

void CudaBackend::attention_backward(const KernelContext& context, const AttentionGrads& grads,
                                     const AttentionInputs& in, const AttentionOptions& options) {
  if (!dtype_is_floating(in.q.dtype))
    not_built(fmt::format("attention_backward of {}", dtype_name(in.q.dtype)));
  if (in.q.numel() == 0 || in.k.numel() == 0 || in.v.numel() == 0) {  // no products
    if (grads.accumulate) return;
    for (const TensorView& gradient : {grads.dq, grads.dk, grads.dv})
      if (gradient.numel() > 0) fill(context, gradient, 0.0);
    return;
  }
  if (SdpaPlan* plan = sdpa_plan(index_, sdpa_shape(grads, in, options))) {
    SdpaRun run;
    run.q = in.q.data;
    run.k = in.k.data;
    run.v = in.v.data;
    run.o = grads.o.data;
    run.lse = grads.lse.data;
    run.grad_o = grads.grad_o.data;
    run.dq = grads.dq.data;
    run.dk = grads.dk.data;
    run.dv = grads.dv.data;
    return run_plan(context, *plan, run);
  }
  product_attention_backward(*this, index_, context, grads, in, options);
}

bool CudaBackend::reads_attention_delta(const AttentionGrads& grads, const AttentionInputs& in,
                                        const AttentionOptions& options) const {
  return sdpa_plan(index_, sdpa_shape(grads, in, options)) == nullptr;
}

void CudaBackend::attention_delta(const KernelContext& context, const TensorView& delta,
                                  const TensorView& grad_o, const TensorView& o) {
  launch_attention_delta(device_view(delta), device_view(grad_o), device_view(o),
                         stream_of(context));
}

}  // namespace meshloom::kernels::cuda
