// SPDX-License-Identifier: Apache-2.0
// What an epilogue of matmul needs beside the library's: bias and GELU of matrices in place.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/base/dtype.h"

namespace meshloom::kernels::cuda {

enum class Activation : std::uint8_t { kNone, kGelu, kGeluTanh };

/// x [batch, rows, columns] with dense columns becomes x + bias, y its activation. x and y have one
/// floating dtype and may be the same memory; then it receives y. Strides are in elements.
struct BiasGelu {
  DType dtype = DType::kFloat32;
  void* x = nullptr;
  void* y = nullptr;
  std::int64_t batch = 1, rows = 0, columns = 0;
  std::int64_t x_batch = 0, x_row = 0, y_batch = 0, y_row = 0;
  const void* bias = nullptr;  ///< [columns] of any floating dtype, or null: x is left as it is
  DType bias_dtype = DType::kFloat32;
  std::int64_t bias_stride = 1;
  Activation activation = Activation::kNone;
};

void launch_bias_gelu(const BiasGelu& call, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
