// SPDX-License-Identifier: Apache-2.0
// Launches of dropout and of random fills. Views are contiguous, of a floating dtype, with
// elements.
#pragma once

#include <driver_types.h>

#include "kernels/base/philox.h"
#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// An element whose random bits are below `threshold` is 0, others are multiplied by `scale`
/// (float64: divided by `divisor`).
struct DropoutRule {
  std::uint32_t threshold = 0;
  float scale = 1.0f;
  double divisor = 1.0;
};

void launch_dropout(const DeviceView& y, const DeviceView& x, const PhiloxStream& random,
                    std::uint64_t first_index, const DropoutRule& rule, cudaStream_t stream);

/// value * scale + offset of the stream's normal or uniform values.
void launch_random_fill(const DeviceView& dst, const PhiloxStream& random,
                        std::uint64_t first_index, bool normal, float scale, float offset,
                        cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
