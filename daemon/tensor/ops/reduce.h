// SPDX-License-Identifier: Apache-2.0
// Reductions over some or all dims. An empty list of dims means all.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

/// Each takes a floating tensor and gives its dtype, without the dims or, with keepdim, with size 1
/// there. Dims may count from the end. Throws InvalidArgument naming the op for another dtype, a
/// dim that x has not and one that is given twice.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// The gradient is shared evenly between equal maxima. Throws InvalidArgument also where there are
/// no elements to take the maximum of.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Divides by max(0, count - correction).
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);

}  // namespace meshloom::ops
