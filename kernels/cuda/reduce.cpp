// SPDX-License-Identifier: Apache-2.0
// Reductions: calls of Backend on CUDA.
#include <algorithm>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/reduce_launch.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

std::vector<DeviceView> device_views(std::span<const TensorView> views) {
  std::vector<DeviceView> plain(views.size());
  std::transform(views.begin(), views.end(), plain.begin(), device_view);
  return plain;
}

void* reserve_for(const KernelContext& context, const std::vector<DeviceView>& views,
                  const char* call) {
  const std::size_t bytes = tensors_workspace(views.data(), static_cast<int>(views.size()));
  return reserve_scratch(context, bytes, call).data();
}

}  // namespace

void CudaBackend::reduce(const KernelContext& context, ReduceOp op, const TensorView& y,
                         const TensorView& x, double correction) {
  if (y.numel() == 0) return;
  const DeviceView out = device_view(y), in = device_view(x);
  void* const workspace = reserve_scratch(context, reduce_workspace(op, out, in), "reduce").data();
  launch_reduce(op, out, in, correction, workspace, stream_of(context));
}

void CudaBackend::sum_of_squares(const KernelContext& context, const TensorView& out,
                                 std::span<const TensorView> xs, bool accumulate) {
  const std::vector<DeviceView> views = device_views(xs);
  launch_sum_of_squares(out.as<float>(), views.data(), static_cast<int>(views.size()), accumulate,
                        reserve_for(context, views, "sum_of_squares"), stream_of(context));
}

void CudaBackend::first_nonfinite(const KernelContext& context, const TensorView& index,
                                  std::span<const TensorView> xs) {
  const std::vector<DeviceView> views = device_views(xs);
  launch_first_nonfinite(index.as<std::int64_t>(), views.data(), static_cast<int>(views.size()),
                         reserve_for(context, views, "first_nonfinite"), stream_of(context));
}

}  // namespace meshloom::kernels::cuda
