// SPDX-License-Identifier: Apache-2.0
// Row sums of grad_o * o.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// delta [B,H,S] float32 (or float64 for float64), grad_o and o [B,H,S,D], any strides; o of
/// grad_o's dtype or float32.
void launch_attention_delta(const DeviceView& delta, const DeviceView& grad_o, const DeviceView& o,
                            cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
