// SPDX-License-Identifier: Apache-2.0
// SdpaPlan of emulated devices: the CPU's attention in the place of cuDNN's engines.
#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/attention/sdpa_plan.h"
#include "kernels/cuda/runtime/check.h"
#include "tests/support/cuda_emulator/libraries/used_memory.h"
#include "tests/support/fenced_device/heap_workspace.h"

namespace meshloom::emulator {
namespace {

using kernels::cuda::SdpaLayout;
using kernels::cuda::SdpaMask;
using kernels::cuda::SdpaPlan;
using kernels::cuda::SdpaRun;
using kernels::cuda::SdpaShape;

class EmulatedSdpaPlan final : public SdpaPlan {
 public:
  explicit EmulatedSdpaPlan(const SdpaShape& shape) : shape_(shape) {}

  std::size_t workspace_bytes() const override { return kWorkspaceBytes; }

  void run(cudaStream_t stream, const SdpaRun& run, void* workspace) override {
    const kernels::AttentionInputs in = inputs(run);
    std::vector<MemoryUse> uses{{workspace, kWorkspaceBytes, true}};
    for (const TensorView& read : {in.q, in.k, in.v}) add_use(uses, read, false);
    const kernels::AttentionOutputs out{
        view(run.o, shape_.heads, shape_.queries, shape_.dims_v, shape_.o), lse(run.lse), false};
    add_use(uses, out.o, !shape_.backward);
    add_use(uses, out.lse, !shape_.backward);
    if (!shape_.backward)
      return give(stream, std::move(uses), workspace, [=, options = options()](auto& context) {
        kernels::cpu::cpu_backend().attention(context, out, in, options);
      });
    const kernels::AttentionGrads grads = gradients(run, out);
    add_use(uses, grads.grad_o, false);
    for (const TensorView& written : {grads.dq, grads.dk, grads.dv}) add_use(uses, written, true);
    give(stream, std::move(uses), workspace, [=, options = options()](auto& context) {
      kernels::AttentionGrads known = grads;
      std::vector<float> delta(static_cast<std::size_t>(known.lse.numel()));
      known.delta = make_view(delta.data(), DType::kFloat32, known.lse.shape);
      kernels::cpu::cpu_backend().attention_delta(context, known.delta, known.grad_o, known.o);
      kernels::cpu::cpu_backend().attention_backward(context, known, in, options);
    });
  }

 private:
  static constexpr std::size_t kWorkspaceBytes = 2048;

  template <class Work>
  static void give(cudaStream_t stream, std::vector<MemoryUse> uses, void* workspace, Work work) {
    kernels::cuda::check(
        queue_library_call(stream, "cuDNN attention", std::move(uses),
                           [workspace, work = std::move(work)] {
                             // A library's workspace holds what it likes.
                             std::memset(workspace, 0xff, kWorkspaceBytes);
                             testing::HeapWorkspace scratch;
                             const kernels::KernelContext context{{1}, {}, &scratch};
                             work(context);
                           }),
        "cuDNN attention");
  }

  TensorView view(void* data, std::int64_t heads, std::int64_t rows, std::int64_t dims,
                  const SdpaLayout& layout) const {
    return {data,
            DType::kBFloat16,
            {shape_.batch, heads, rows, dims},
            {layout.batch, layout.head, layout.row, 1},
            kCpuDevice};
  }

  TensorView lse(void* data) const {
    return make_view(data, DType::kFloat32, {shape_.batch, shape_.heads, shape_.queries});
  }

  kernels::AttentionInputs inputs(const SdpaRun& run) const {
    return {view(run.q, shape_.heads, shape_.queries, shape_.dims, shape_.q),
            view(run.k, shape_.kv_heads, shape_.keys, shape_.dims, shape_.k),
            view(run.v, shape_.kv_heads, shape_.keys, shape_.dims_v, shape_.v)};
  }

  kernels::AttentionGrads gradients(const SdpaRun& run,
                                    const kernels::AttentionOutputs& out) const {
    kernels::AttentionGrads grads;
    grads.grad_o = view(run.grad_o, shape_.heads, shape_.queries, shape_.dims_v, shape_.grad_o);
    grads.lse = out.lse;
    grads.o = out.o;
    grads.dq = view(run.dq, shape_.heads, shape_.queries, shape_.dims, shape_.dq);
    grads.dk = view(run.dk, shape_.kv_heads, shape_.keys, shape_.dims, shape_.dk);
    grads.dv = view(run.dv, shape_.kv_heads, shape_.keys, shape_.dims_v, shape_.dv);
    return grads;
  }

  kernels::AttentionOptions options() const {
    kernels::AttentionOptions options;
    options.scale = shape_.scale;
    options.is_causal = shape_.mask != SdpaMask::kFull;
    if (shape_.mask == SdpaMask::kCausalBottomRight)
      options.query_offset = shape_.keys - shape_.queries;
    options.window_left = shape_.window_left;
    return options;
  }

  SdpaShape shape_;
};

}  // namespace
}  // namespace meshloom::emulator

namespace meshloom::kernels::cuda {

std::unique_ptr<SdpaPlan> create_sdpa_plan(int /*device*/, const SdpaShape& shape) {
  return std::make_unique<emulator::EmulatedSdpaPlan>(shape);
}

}  // namespace meshloom::kernels::cuda
