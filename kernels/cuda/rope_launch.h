// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// RopeOptions as plain data. Without positions the caller has seen that all lie in the table.
struct RopeArguments {
  DeviceView y, x, cosine, sine, positions;
  std::int64_t position_offset = 0;
  bool inverse = false;
};

/// At least one pair of elements, as Backend::rope.
void launch_rope(const RopeArguments& arguments, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
