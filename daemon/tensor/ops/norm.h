// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm over the last dim(s), alone or with the residual addition before them.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

/// Over the last `normalized_ndim` dims; weight and bias have their sizes, or are undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                  int normalized_ndim = 1);
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);

struct NormedSum {
  Tensor normed;  ///< norm(x + residual)
  Tensor sum;     ///< x + residual: the next residual
};
/// The chain between two sublayers of a pre-norm block in one pass.
NormedSum add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                         const Tensor& bias, double eps);
NormedSum add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps);

}  // namespace meshloom::ops
