// SPDX-License-Identifier: Apache-2.0
// Fused optimizer steps: calls of Backend on CUDA.
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/optimizer_launch.h"

namespace meshloom::kernels::cuda {
namespace {

std::vector<StepTensor> step_tensors(std::span<const OptimizerTensor> tensors) {
  std::vector<StepTensor> plain;
  plain.reserve(tensors.size());
  for (const OptimizerTensor& tensor : tensors) {
    if (tensor.master.numel() == 0) continue;
    plain.push_back({tensor.master.as<float>(), tensor.grad.as<const float>(),
                     tensor.moment1.as<float>(), tensor.moment2.as<float>(), tensor.working.data,
                     tensor.master.numel(), tensor.weight_decay});
  }
  return plain;
}

StepPointers step_pointers(const StepScalars& scalars) {
  return {scalars.lr.as<const float>(), scalars.step.as<const std::int64_t>(),
          scalars.grad_factor.as<const float>(), scalars.grad_norm.as<const float>(),
          scalars.loss.as<const double>()};
}

}  // namespace

void CudaBackend::clip_factor(const KernelContext& context, const TensorView& norm,
                              const TensorView& factor, const TensorView& sum_of_squares,
                              double max_norm) {
  launch_clip_factor(norm.as<float>(), factor.as<float>(), sum_of_squares.as<const double>(),
                     static_cast<float>(max_norm), stream_of(context));
}

void CudaBackend::adam_step(const KernelContext& context, std::span<const OptimizerTensor> tensors,
                            const StepScalars& scalars, const AdamOptions& options) {
  const std::vector<StepTensor> plain = step_tensors(tensors);
  launch_adam(plain.data(), static_cast<int>(plain.size()), step_pointers(scalars),
              {options.beta1, options.beta2, options.eps, options.decoupled}, stream_of(context));
}

void CudaBackend::sgd_step(const KernelContext& context, std::span<const OptimizerTensor> tensors,
                           const StepScalars& scalars, const SgdOptions& options) {
  const std::vector<StepTensor> plain = step_tensors(tensors);
  launch_sgd(plain.data(), static_cast<int>(plain.size()), step_pointers(scalars),
             {options.momentum, 1.0f - options.dampening, options.nesterov}, stream_of(context));
}

}  // namespace meshloom::kernels::cuda
