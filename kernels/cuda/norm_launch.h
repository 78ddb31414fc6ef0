// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstddef>

#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// NormViews and NormOptions as plain data.
struct NormArguments {
  DeviceView y, sum, mean, rstd, x, residual, weight, bias;
  double eps = 0.0;
  bool rms = false;
};

/// NormGrads as plain data.
struct NormBackwardArguments {
  DeviceView dx, dweight, dbias, dy, x, weight, mean, rstd;
  bool accumulate_dx = false;
  bool accumulate_params = false;
};

/// At least one element, as Backend's calls norm and norm_backward.
void launch_norm(const NormArguments& arguments, cudaStream_t stream);
void launch_norm_backward(const NormBackwardArguments& arguments, void* scratch,
                          cudaStream_t stream);
/// Bytes of launch_norm_backward's scratch.
std::size_t norm_backward_scratch(const NormBackwardArguments& arguments);

}  // namespace meshloom::kernels::cuda
