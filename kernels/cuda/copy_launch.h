// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// Both views have the same shape, of at least one element, and lie on the device, apart from each
/// other.
void launch_copy(const DeviceView& dst, const DeviceView& src, cudaStream_t stream);
/// `dst` has at least one element.
void launch_fill(const DeviceView& dst, double value, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
