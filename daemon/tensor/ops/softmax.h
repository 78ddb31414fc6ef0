// SPDX-License-Identifier: Apache-2.0
// Softmax and its logarithm along any dim.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

/// Both take a floating tensor of any shape and give one of its shape and dtype, contiguous where
/// `dim`, which may count from the end, is the last. Throws InvalidArgument naming the op for
/// another dtype or a dim that x has not.
Tensor softmax(const Tensor& x, std::int64_t dim);
Tensor log_softmax(const Tensor& x, std::int64_t dim);

}  // namespace meshloom::ops
