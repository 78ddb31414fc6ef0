// SPDX-License-Identifier: Apache-2.0
// A library's way of multiplying matrices of one shape.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "kernels/cuda/matmul/matmul_shape.h"

namespace meshloom::kernels::cuda {

/// Addresses and factors of one run. `bias` and `kept` are null where the shape's epilogue has
/// none.
struct MatmulRun {
  void* y = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* kept = nullptr;
  const float* a_scale = nullptr;  ///< of float8 operands: one factor each, on the device
  const float* b_scale = nullptr;
  float alpha = 1.0f;
  float beta = 0.0f;
};

/// Made once for a shape. A run allocates nothing, and its bits depend on the shape and the values
/// alone. For any thread.
class MatmulPlan {
 public:
  virtual ~MatmulPlan() = default;
  /// Bytes of device memory, aligned to 256, that a run needs.
  virtual std::size_t workspace_bytes() const = 0;
  /// Queues the product. Throws InternalError with what the library says.
  virtual void run(cudaStream_t stream, const MatmulRun& run, void* workspace) = 0;
};

/// A plan for a device of this process by deterministic kernel `kernel` of those that the library
/// lists for the shape, best guess first; null where there are not so many. Throws InternalError if
/// the library cannot be used.
std::unique_ptr<MatmulPlan> create_matmul_plan(int device, const MatmulShape& shape, int kernel);
/// How many there are.
int count_matmul_kernels(int device, const MatmulShape& shape);

}  // namespace meshloom::kernels::cuda
