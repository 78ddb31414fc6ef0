// SPDX-License-Identifier: Apache-2.0
// What every backend asks of a product with scales (MatmulOptions::scales).
#pragma once

#include "kernels/base/error.h"
#include "kernels/base/format.h"
#include "kernels/options.h"

namespace meshloom::kernels {

/// Throws InvalidArgument for what matmul does not take together with scales.
inline void check_scaled_product(const TensorView& y, const TensorView& a,
                                 const MatmulOptions& options) {
  check(y.ndim() == 2 && a.ndim() == 2 && y.contiguous(),
        "matmul: scales are for matrices with a contiguous result, y has shape {} and strides {}",
        y.shape, y.strides);
  check(options.alpha == 1.0f && options.beta == 0.0f && options.epilogue <= Epilogue::kBias &&
            !options.batch_invariant,
        "matmul: scales go with a bias and nothing else, alpha is {}, beta {}", options.alpha,
        options.beta);
  const auto check_factors = [](const char* name, const TensorView& view, std::int64_t count) {
    if (!view.defined()) return;
    check(view.dtype == DType::kFloat32 && view.ndim() == 1 &&
              (view.size(0) == 1 || view.size(0) == count),
          "matmul: {} has dtype {} and shape {}, expected float32 and 1 or {} elements", name,
          dtype_name(view.dtype), view.shape, count);
  };
  check_factors("scales.rows", options.scales.rows, y.size(0));
  check_factors("scales.columns", options.scales.columns, y.size(1));
  check_factors("scales.result", options.scales.result, 1);
  if (options.epilogue == Epilogue::kBias)
    check(options.bias.dtype == DType::kFloat32,
          "matmul: a bias of {} beside scales, expected float32", dtype_name(options.bias.dtype));
}

/// Returns the number of elements from one row's (or column's) factor to the next: 0 where one
/// serves all.
inline std::int64_t factor_stride(const TensorView& factors) {
  return factors.defined() && factors.size(0) > 1 ? factors.stride(0) : 0;
}

}  // namespace meshloom::kernels
