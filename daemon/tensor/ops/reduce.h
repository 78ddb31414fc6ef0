// SPDX-License-Identifier: Apache-2.0
// Reductions over some or all dims. An empty list of dims means all.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// The gradient is shared evenly between equal maxima.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Divides by max(0, count - correction).
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);

}  // namespace meshloom::ops
