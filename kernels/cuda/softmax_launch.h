// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// Contiguous views of at least one element, as Backend::softmax.
void launch_softmax(const DeviceView& y, const DeviceView& x, bool log, cudaStream_t stream);
void launch_softmax_backward(const DeviceView& dx, const DeviceView& dy, const DeviceView& y,
                             bool log, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
