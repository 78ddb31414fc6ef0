// SPDX-License-Identifier: Apache-2.0
// Softmax and its logarithm along any dim.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

Tensor softmax(const Tensor& x, std::int64_t dim);
Tensor log_softmax(const Tensor& x, std::int64_t dim);

}  // namespace meshloom::ops
