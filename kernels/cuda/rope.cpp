// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: a call of Backend on CUDA.
#include "kernels/cuda/rope_launch.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/base/format.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/host_views.h"

namespace meshloom::kernels::cuda {
namespace {

// Positions that are given lie in device memory and are the kernel's to guard.
void check_positions(const RopeOptions& options, std::int64_t length) {
  if (options.positions.defined()) return;
  const std::int64_t count = options.cos.size(0), first = options.position_offset;
  if (first >= 0 && first + length <= count) return;
  throw OutOfRange(fmt::format("rope: position {} is not in [0, {}), the rows of the table",
                               first < 0 ? first : std::max(first, count), count));
}

}  // namespace

void CudaBackend::rope(const KernelContext& context, const TensorView& y, const TensorView& x,
                       const RopeOptions& options) {
  if (x.numel() == 0) return;
  check_positions(options, x.size(2));
  if (x.size(3) < 2) return;
  launch_rope({.y = device_view(y),
               .x = device_view(x),
               .cosine = device_view(options.cos),
               .sine = device_view(options.sin),
               .positions = device_view(options.positions),
               .position_offset = options.position_offset,
               .inverse = options.inverse},
              stream_of(context));
}

}  // namespace meshloom::kernels::cuda
