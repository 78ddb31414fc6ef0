// SPDX-License-Identifier: Apache-2.0
// What a matmul does to its result before storing it: bias and GELU on rows of a float32 or float64
// product.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace meshloom::kernels::cpu {

/// ProductRows holds the product x [m, n] with dense rows, leading dimension ldx.
template <typename Compute>
struct ProductRows {
  Compute* x = nullptr;
  std::int64_t m = 0, n = 0, ldx = 0;
};

/// y = epilogue(x), pre_activation (where defined) = x + bias. `bias` has n elements of the compute
/// type, or is null for kNone. y and pre_activation are [m, n] views of one dtype with any strides;
/// y may be x itself. x is overwritten. Offered for float and double.
template <typename Compute>
void apply_epilogue(const KernelContext& context, Epilogue epilogue,
                    const ProductRows<Compute>& product, const Compute* bias, const TensorView& y,
                    const TensorView& pre_activation);

}  // namespace meshloom::kernels::cpu
