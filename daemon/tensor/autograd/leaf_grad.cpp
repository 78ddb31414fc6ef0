// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/autograd/leaf_grad.h"

#include "kernels/base/error.h"

namespace meshloom::autograd {

const Tensor& LeafGrad::buffer() {
  if (!buffer_) buffer_ = empty(context_, shape_, dtype_);
  return buffer_;
}

void LeafGrad::set_buffer(Tensor buffer) {
  check(buffer.shape() == shape_ && buffer.dtype() == dtype_ && buffer.contiguous(),
        "set_buffer: expected a contiguous {} tensor of shape {}, got {} of shape {}",
        dtype_name(dtype_), shape_, dtype_name(buffer.dtype()), buffer.shape());
  if (has_value_) throw FailedPrecondition("set_buffer: the leaf holds a gradient");
  buffer_ = std::move(buffer);
}

void LeafGrad::accumulate(const Tensor& grad) {
  check(grad.shape() == shape_, "gradient of shape {} for a leaf of shape {}", grad.shape(),
        shape_);
  const NoGradGuard guard(context_);
  const Tensor& sum = buffer();
  if (!has_value_) {
    copy_into(sum, grad);
    has_value_ = true;
    return;
  }
  Tensor term = grad;
  if (grad.dtype() != dtype_) {
    term = empty(context_, shape_, dtype_);
    copy_into(term, grad);
  }
  context_.backend().binary(context_.kernel_context(), kernels::BinaryOp::kAdd, sum.view(),
                            sum.view(), term.view());
}

}  // namespace meshloom::autograd
