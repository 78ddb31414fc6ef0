// SPDX-License-Identifier: Apache-2.0
// Changes single elements of tensors, wherever they lie.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::testing {

/// Element `i` of a contiguous tensor.
inline TensorView element_of(const Tensor& x, std::int64_t i) {
  TensorView view = x.view();
  view.shape = {x.numel()};
  view.strides = {1};
  return rows_of(view, i, 1);
}

inline void set_element(const Tensor& x, std::int64_t i, double value) {
  x.context().backend().fill(x.context().kernel_context(), element_of(x, i), value);
}

/// x[i] += value, rounded to x's dtype.
inline void add_to_element(const Tensor& x, std::int64_t i, double value) {
  const TensorView element = element_of(x, i);
  x.context().backend().unary(x.context().kernel_context(), kernels::UnaryOp::kAdd, element,
                              element, value);
}

}  // namespace meshloom::testing
