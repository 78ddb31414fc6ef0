// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstddef>

#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// out [columns] = (accumulate ? out : 0) + the sum over the rows of x [rows, columns], dense rows;
/// out is float32, or float64 for float64. At least one element.
void launch_bias_grad(const DeviceView& out, const DeviceView& x, bool accumulate, void* scratch,
                      cudaStream_t stream);
/// Bytes of its scratch.
std::size_t bias_grad_scratch(const DeviceView& x);

}  // namespace meshloom::kernels::cuda
