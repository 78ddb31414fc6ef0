// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include "kernels/cuda/device_view.h"

namespace meshloom::kernels::cuda {

/// CrossEntropyRows and CrossEntropyOptions as plain data.
struct CrossEntropyArguments {
  DeviceView logits, targets, losses, lse;
  std::int64_t ignore_index = 0;
  double smoothing = 0.0;
  double grad_scale = 1.0;
  std::int64_t total = 0;  ///< classes of all slices; 0: the logits have them all
};

/// At least one row, as Backend's calls of these names.
void launch_cross_entropy(const CrossEntropyArguments& arguments, cudaStream_t stream);
void launch_cross_entropy_backward(const DeviceView& dlogits, const DeviceView& grad_losses,
                                   const CrossEntropyArguments& arguments, cudaStream_t stream);
void launch_combine_class_slices(const CrossEntropyArguments& arguments, const DeviceView& slices,
                                 cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
