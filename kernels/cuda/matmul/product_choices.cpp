// SPDX-License-Identifier: Apache-2.0
// The library's kernels for a product, for who writes the table of them.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/matmul_table.h"
#include "kernels/cuda/matmul/product.h"
#include "kernels/cuda/runtime/current_device.h"
#include "kernels/cuda/runtime/library_versions.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {

int CudaBackend::count_choices(const TensorView& y, const TensorView& a, const TensorView& b,
                               const MatmulOptions& options) {
  return count_matmul_kernels(index_, Product(*this, index_, y, a, b, options).library_shape());
}

void CudaBackend::matmul_by(int choice, const KernelContext& context, const TensorView& y,
                            const TensorView& a, const TensorView& b,
                            const MatmulOptions& options) {
  const Product product(*this, index_, y, a, b, options, choice);
  product.run(context, reserve_scratch(context, product.scratch_bytes(), "matmul"));
}

std::string CudaBackend::choice_entry(int choice, const TensorView& y, const TensorView& a,
                                      const TensorView& b, const MatmulOptions& options) {
  const Product product(*this, index_, y, a, b, options, choice);
  return matmul_entry(device_class(index_), product.library_shape(), choice);
}

std::string CudaBackend::choice_table(std::span<const std::string> entries) {
  return matmul_table_source(library_versions(), entries);
}

}  // namespace meshloom::kernels::cuda
