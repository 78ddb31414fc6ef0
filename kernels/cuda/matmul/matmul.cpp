// SPDX-License-Identifier: Apache-2.0
#include "kernels/base/error.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/invariant_rows.h"
#include "kernels/cuda/matmul/product.h"
#include "kernels/cuda/matmul/scaled_matmul.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/current_device.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

// No terms to sum (a rank whose part of the inner dim is empty): y = epilogue(beta * y).
void run_empty(CudaBackend& backend, const KernelContext& context, const TensorView& y,
               const MatmulOptions& options) {
  check(options.epilogue <= Epilogue::kBias &&
            (options.epilogue == Epilogue::kNone || options.beta == 0.0f),
        "matmul: this epilogue needs an inner size of at least 1");
  if (options.epilogue == Epilogue::kBias) {
    TensorView rows = options.bias;
    rows.shape = y.shape;
    rows.strides = y.strides;
    for (int d = 0; d + 1 < rows.ndim(); ++d) rows.strides[d] = 0;
    rows.strides[rows.ndim() - 1] = options.bias.stride(0);
    backend.copy(context, y, rows);
    return;
  }
  if (options.beta == 0.0f) backend.fill(context, y, 0.0);
}

}  // namespace

bool CudaBackend::takes_float8() const { return has_float8_products(index_); }

void CudaBackend::matmul(const KernelContext& context, const TensorView& y, const TensorView& a,
                         const TensorView& b, const MatmulOptions& options) {
  if (y.numel() == 0) return;
  if (options.scales.defined()) return scaled_matmul(*this, index_, context, y, a, b, options);
  const bool is_float8 = a.dtype == DType::kFloat8E4M3 || a.dtype == DType::kFloat8E5M2;
  if (!dtype_is_floating(a.dtype) || is_float8)
    not_built(fmt::format("matmul of {}", dtype_name(a.dtype)));
  if (a.size(a.ndim() - 1) == 0) return run_empty(*this, context, y, options);
  if (options.batch_invariant)
    return invariant_rows_matmul(*this, index_, context, y, a, b, options);
  const Product product(*this, index_, y, a, b, options);
  product.run(context, reserve_scratch(context, product.scratch_bytes(), "matmul"));
}

}  // namespace meshloom::kernels::cuda
