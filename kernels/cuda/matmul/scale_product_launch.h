// SPDX-License-Identifier: Apache-2.0
// Scales and bias of a product that lies in memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/base/dtype.h"

namespace meshloom::kernels::cuda {

/// One number for each row or column, or (stride 0) for all; null: none.
struct ScaleFactors {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

/// y = (sums * row_scales[i] * column_scales[j] + bias[j]) * result_scale, [rows, columns]
/// contiguous, rounded once to any dtype. y may be the memory of the sums if it is float32.
struct ScaleProduct {
  void* y = nullptr;
  DType dtype = DType::kFloat32;
  const float* sums = nullptr;
  std::int64_t rows = 0, columns = 0;
  ScaleFactors row_scales, column_scales, bias;
  const float* result_scale = nullptr;
};

void launch_scale_product(const ScaleProduct& call, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
