// SPDX-License-Identifier: Apache-2.0
// MatmulPlan of emulated devices: the CPU's matmul in the place of cuBLASLt's kernels.
#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/runtime/check.h"
#include "tests/support/cuda_emulator/libraries/used_memory.h"
#include "tests/support/fenced_device/heap_workspace.h"

namespace meshloom::emulator {
namespace {

using kernels::cuda::LibraryEpilogue;
using kernels::cuda::MatmulPlan;
using kernels::cuda::MatmulRun;
using kernels::cuda::MatmulShape;
using kernels::cuda::MatrixLayout;

class EmulatedMatmulPlan final : public MatmulPlan {
 public:
  explicit EmulatedMatmulPlan(const MatmulShape& shape) : shape_(shape) {}

  std::size_t workspace_bytes() const override { return kWorkspaceBytes; }

  void run(cudaStream_t stream, const MatmulRun& run, void* workspace) override {
    const TensorView y = view(run.y, shape_.result, shape_.y, shape_.m, shape_.n);
    const TensorView a =
        view(const_cast<void*>(run.a), shape_.operands, shape_.a, shape_.m, shape_.k);
    const TensorView b =
        view(const_cast<void*>(run.b), shape_.operands, shape_.b, shape_.k, shape_.n);
    const kernels::MatmulOptions options = options_of(run);
    std::vector<MemoryUse> uses{{workspace, kWorkspaceBytes, true}};
    add_use(uses, a, false);
    add_use(uses, b, false);
    add_use(uses, options.bias, false);
    add_use(uses, options.pre_activation, true);
    if (run.beta != 0.0f) add_use(uses, y, false);
    add_use(uses, y, true);
    for (const float* const scale : {run.a_scale, run.b_scale})
      if (scale != nullptr) uses.push_back({scale, sizeof(float), false});
    kernels::cuda::check(
        queue_library_call(stream, "cuBLASLt matmul", std::move(uses),
                           [=] {
                             // A library's workspace holds what it likes between calls.
                             std::memset(workspace, 0xff, kWorkspaceBytes);
                             testing::HeapWorkspace scratch;
                             const kernels::KernelContext context{{1}, {}, &scratch};
                             if (run.a_scale != nullptr)
                               return multiply_float8(context, y, a, b, run);
                             kernels::cpu::cpu_backend().matmul(context, y, a, b, options);
                           }),
        "cuBLASLt matmul");
  }

 private:
  static constexpr std::size_t kWorkspaceBytes = 1024;

  // The CPU multiplies no float8: both are widened, which loses nothing.
  static void multiply_float8(const kernels::KernelContext& context, const TensorView& y,
                              const TensorView& a, const TensorView& b, const MatmulRun& run) {
    kernels::Backend& cpu = kernels::cpu::cpu_backend();
    std::vector<float> memory(static_cast<std::size_t>(a.numel() + b.numel()));
    const TensorView wide_a = make_view(memory.data(), DType::kFloat32, a.shape);
    const TensorView wide_b = make_view(memory.data() + a.numel(), DType::kFloat32, b.shape);
    cpu.copy(context, wide_a, a);
    cpu.copy(context, wide_b, b);
    kernels::MatmulOptions options;
    options.alpha = *run.a_scale * *run.b_scale;
    cpu.matmul(context, y, wide_a, wide_b, options);
  }

  TensorView view(void* data, DType dtype, const MatrixLayout& layout, std::int64_t rows,
                  std::int64_t columns) const {
    const Strides matrix = layout.transposed ? Strides{1, layout.ld} : Strides{layout.ld, 1};
    return {data,
            dtype,
            {shape_.batch, rows, columns},
            {layout.batch_stride, matrix[0], matrix[1]},
            kCpuDevice};
  }

  kernels::MatmulOptions options_of(const MatmulRun& run) const {
    kernels::MatmulOptions options;
    options.alpha = run.alpha;
    options.beta = run.beta;
    if (shape_.epilogue == LibraryEpilogue::kNone) return options;
    options.epilogue = shape_.epilogue == LibraryEpilogue::kBias ? kernels::Epilogue::kBias
                                                                 : kernels::Epilogue::kBiasGeluTanh;
    options.bias = make_view(const_cast<void*>(run.bias), shape_.result, {shape_.n});
    if (shape_.epilogue == LibraryEpilogue::kBiasGeluTanhKept)
      options.pre_activation = view(run.kept, shape_.result, shape_.kept, shape_.m, shape_.n);
    return options;
  }

  MatmulShape shape_;
};

}  // namespace
}  // namespace meshloom::emulator

namespace meshloom::kernels::cuda {

// Two kernels that are one, so that a table can be tuned.
int count_matmul_kernels(int /*device*/, const MatmulShape& /*shape*/) { return 2; }

std::unique_ptr<MatmulPlan> create_matmul_plan(int device, const MatmulShape& shape, int kernel) {
  if (kernel >= count_matmul_kernels(device, shape)) return nullptr;
  return std::make_unique<emulator::EmulatedMatmulPlan>(shape);
}

}  // namespace meshloom::kernels::cuda
