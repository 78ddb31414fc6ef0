// SPDX-License-Identifier: Apache-2.0
// Tensors that a model makes by itself (positions, tables) next to tensors it was given.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::nn {

/// Returns `values`, the same on all ranks, beside `reference`: if that is a tensor of many ranks,
/// the values become one that every rank holds whole, else they come back as they are. No gradient.
Tensor replicated_like(const Tensor& values, const Tensor& reference);

}  // namespace meshloom::nn
