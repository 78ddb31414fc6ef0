// SPDX-License-Identifier: Apache-2.0
// Cross entropy from logits: calls of Backend on CUDA.
#include "kernels/cuda/cross_entropy_launch.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"

namespace meshloom::kernels::cuda {
namespace {

CrossEntropyArguments cross_entropy_arguments(const CrossEntropyRows& rows,
                                              const CrossEntropyOptions& options) {
  return {.logits = device_view(rows.logits),
          .targets = device_view(rows.targets),
          .losses = device_view(rows.losses),
          .lse = device_view(rows.lse),
          .ignore_index = options.ignore_index,
          .smoothing = options.label_smoothing,
          .grad_scale = options.grad_scale,
          .total = options.slice.total};
}

}  // namespace

void CudaBackend::cross_entropy(const KernelContext& context, const CrossEntropyRows& rows,
                                const CrossEntropyOptions& options) {
  if (rows.targets.numel() == 0) return;
  launch_cross_entropy(cross_entropy_arguments(rows, options), stream_of(context));
}

void CudaBackend::combine_class_slices(const KernelContext& context, const CrossEntropyRows& rows,
                                       const TensorView& slices, std::int64_t ignore_index) {
  if (rows.targets.numel() == 0) return;
  CrossEntropyOptions options;
  options.ignore_index = ignore_index;
  launch_combine_class_slices(cross_entropy_arguments(rows, options), device_view(slices),
                              stream_of(context));
}

void CudaBackend::cross_entropy_backward(const KernelContext& context, const TensorView& dlogits,
                                         const TensorView& grad_losses,
                                         const CrossEntropyRows& rows,
                                         const CrossEntropyOptions& options) {
  if (dlogits.numel() == 0) return;
  launch_cross_entropy_backward(device_view(dlogits), device_view(grad_losses),
                                cross_entropy_arguments(rows, options), stream_of(context));
}

}  // namespace meshloom::kernels::cuda
