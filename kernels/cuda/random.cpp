// SPDX-License-Identifier: Apache-2.0
// Dropout and random fills: calls of Backend on CUDA.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/random_launch.h"

namespace meshloom::kernels::cuda {

// An element is kept where its uniform value is not below p, which is said of the bits that it is
// made of: nothing is rounded on the way. With p of 1 and more the scale of 0 leaves nothing.
void CudaBackend::dropout(const KernelContext& context, const TensorView& y, const TensorView& x,
                          const DropoutOptions& options) {
  if (x.numel() == 0) return;
  const auto p = static_cast<float>(options.p);
  const double least = std::ceil(static_cast<double>(p) * 0x1p24);
  DropoutRule rule;
  rule.threshold = static_cast<std::uint32_t>(std::clamp(least, 0.0, 0x1p24 - 1.0)) << 8;
  rule.scale = p >= 1.0f ? 0.0f : 1.0f / (1.0f - p);
  rule.divisor = p >= 1.0f ? HUGE_VAL : 1.0 - options.p;
  launch_dropout(device_view(y), device_view(x), options.random, options.first_index, rule,
                 stream_of(context));
}

void CudaBackend::fill_normal(const KernelContext& context, const TensorView& dst,
                              const PhiloxStream& random, std::uint64_t first_index, float mean,
                              float std) {
  if (dst.numel() == 0) return;
  launch_random_fill(device_view(dst), random, first_index, true, std, mean, stream_of(context));
}

void CudaBackend::fill_uniform(const KernelContext& context, const TensorView& dst,
                               const PhiloxStream& random, std::uint64_t first_index, float low,
                               float high) {
  if (dst.numel() == 0) return;
  launch_random_fill(device_view(dst), random, first_index, false, high - low, low,
                     stream_of(context));
}

}  // namespace meshloom::kernels::cuda
