// SPDX-License-Identifier: Apache-2.0
// Which code takes an attention call on a device: cuDNN where the rule allows it and it can, else
// own kernels.
#include <limits>
#include <memory>
#include <utility>

#include "kernels/cuda/attention/attention_delta_launch.h"
#include "kernels/cuda/attention/attention_table.h"
#include "kernels/cuda/attention/flash.h"
#include "kernels/cuda/attention/one_query.h"
#include "kernels/cuda/attention/sdpa_plan.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/plan_cache.h"
#include "kernels/cuda/runtime/call_log.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

// Null where cuDNN is not asked, or cannot.
std::shared_ptr<SdpaPlan> sdpa_plan(int device, const AttentionChoice& choice) {
  // Kept until the process ends: the driver may be gone when statics are destroyed.
  static auto* const plans = new PlanCache<std::pair<int, SdpaShape>, SdpaPlan>;
  if (choice.code != AttentionCode::kCudnn) return nullptr;
  const SdpaShape& shape = *choice.sdpa.shape;
  return plans->find_or_create({device, shape}, [&] { return create_sdpa_plan(device, shape); });
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
  const AttentionChoice choice = choose_attention(out, in, options);
  if (choice.code == AttentionCode::kNone) {
    if (out.carry) return;
    fill(context, out.o, 0.0);
    return fill(context, out.lse, -std::numeric_limits<double>::infinity());
  }
  if (const std::shared_ptr<SdpaPlan> plan = sdpa_plan(index_, choice)) {
    SdpaRun run;
    run.q = in.q.data;
    run.k = in.k.data;
    run.v = in.v.data;
    run.o = out.o.data;
    run.lse = out.lse.data;
    return run_plan(context, *plan, run);
  }
  if (choice.otherwise == AttentionCode::kOneQuery)
    return one_query_attention(context, out, in, options);
  flash_attention(context, choice.otherwise, out, in, options);
}

void CudaBackend::attention_rows(const KernelContext& context, const AttentionOutputs& out,
                                 const TensorView& q, std::span<const AttentionMemory> memories,
                                 double scale) {
  if (!dtype_is_floating(q.dtype))
    not_built(fmt::format("attention_rows of {}", dtype_name(q.dtype)));
  one_query_rows(context, out, q, memories, scale);
}

void CudaBackend::attention_backward(const KernelContext& context, const AttentionGrads& grads,
                                     const AttentionInputs& in, const AttentionOptions& options) {
  if (!dtype_is_floating(in.q.dtype))
    not_built(fmt::format("attention_backward of {}", dtype_name(in.q.dtype)));
  const AttentionChoice choice = choose_attention(grads, in, options);
  if (choice.code == AttentionCode::kNone) {
    if (grads.accumulate) return;
    for (const TensorView& gradient : {grads.dq, grads.dk, grads.dv})
      if (gradient.numel() > 0) fill(context, gradient, 0.0);
    return;
  }
  if (const std::shared_ptr<SdpaPlan> plan = sdpa_plan(index_, choice)) {
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
  flash_attention_backward(context, choice.otherwise, grads, in, options);
}

bool CudaBackend::reads_attention_delta(const AttentionGrads& grads, const AttentionInputs& in,
                                        const AttentionOptions& options) const {
  return sdpa_plan(index_, choose_attention(grads, in, options)) == nullptr;
}

void CudaBackend::attention_delta(const KernelContext& context, const TensorView& delta,
                                  const TensorView& grad_o, const TensorView& o) {
  launch_attention_delta(device_view(delta), device_view(grad_o), device_view(o),
                         stream_of(context));
}

}  // namespace meshloom::kernels::cuda
