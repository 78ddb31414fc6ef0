// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm: calls of Backend on CUDA.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/norm_launch.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {

void CudaBackend::norm(const KernelContext& context, const NormViews& views,
                       const NormOptions& options) {
  if (views.x.numel() == 0) return;
  launch_norm({.y = device_view(views.y),
               .sum = device_view(views.sum),
               .mean = device_view(views.mean),
               .rstd = device_view(views.rstd),
               .x = device_view(views.x),
               .residual = device_view(views.residual),
               .weight = device_view(views.weight),
               .bias = device_view(views.bias),
               .eps = options.eps,
               .rms = options.kind == NormKind::kRms},
              stream_of(context));
}

void CudaBackend::norm_backward(const KernelContext& context, const NormGrads& views) {
  if (views.x.numel() == 0) {
    if (views.accumulate_params) return;
    for (const TensorView* grad : {&views.dweight, &views.dbias})
      if (grad->defined() && grad->numel() > 0) fill(context, *grad, 0.0);
    return;
  }
  const NormBackwardArguments arguments{.dx = device_view(views.dx),
                                        .dweight = device_view(views.dweight),
                                        .dbias = device_view(views.dbias),
                                        .dy = device_view(views.dy),
                                        .x = device_view(views.x),
                                        .weight = device_view(views.weight),
                                        .mean = device_view(views.mean),
                                        .rstd = device_view(views.rstd),
                                        .accumulate_dx = views.accumulate_dx,
                                        .accumulate_params = views.accumulate_params};
  void* const scratch =
      reserve_scratch(context, norm_backward_scratch(arguments), "norm_backward").data();
  launch_norm_backward(arguments, scratch, stream_of(context));
}

}  // namespace meshloom::kernels::cuda
