// SPDX-License-Identifier: Apache-2.0
// A TensorView as plain data, which launch functions take and kernels get as an argument.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

namespace meshloom::kernels::cuda {

/// Strides are in elements, 0 where expanded. `data` is null where a view is not given.
struct DeviceView {
  static constexpr int kMostDims = 8;

  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int dims = 0;
  std::int64_t numel = 0;
  std::int64_t sizes[kMostDims] = {};
  std::int64_t strides[kMostDims] = {};
};

}  // namespace meshloom::kernels::cuda
