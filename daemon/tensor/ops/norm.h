// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm over the last dim(s), alone or with the residual addition before them.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

/// Normalizes over the last `normalized_ndim` dims; weight and bias have their sizes, or are
/// undefined. All are of one floating dtype, which the result has too, with the shape of x. Throws
/// InvalidArgument naming the op for what does not fit, here and below.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                  int normalized_ndim = 1);
/// Divides by the root mean square over the last dim, and multiplies by weight [C] or, if that is
/// undefined, by nothing.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);

struct NormedSum {
  Tensor normed;  ///< norm(x + residual)
  Tensor sum;     ///< x + residual: the next residual
};
/// Both run the chain between two sublayers of a pre-norm block in one pass, over the last dim. x
/// and residual have one shape and dtype.
NormedSum add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                         const Tensor& bias, double eps);
NormedSum add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps);

}  // namespace meshloom::ops
