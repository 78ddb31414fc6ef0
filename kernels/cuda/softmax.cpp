// SPDX-License-Identifier: Apache-2.0
// Softmax and log-softmax over the last dim: calls of Backend on CUDA.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/softmax_launch.h"

namespace meshloom::kernels::cuda {

void CudaBackend::softmax(const KernelContext& context, const TensorView& y, const TensorView& x,
                          bool log) {
  if (x.numel() == 0) return;
  launch_softmax(device_view(y), device_view(x), log, stream_of(context));
}

void CudaBackend::softmax_backward(const KernelContext& context, const TensorView& dx,
                                   const TensorView& dy, const TensorView& y, bool log) {
  if (dx.numel() == 0) return;
  launch_softmax_backward(device_view(dx), device_view(dy), device_view(y), log,
                          stream_of(context));
}

}  // namespace meshloom::kernels::cuda
