// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/deferred_checks.h"

#include <utility>

namespace meshloom {

using kernels::BinaryOp;
using kernels::UnaryOp;

void DeferredChecks::add(const Tensor& value, double expected, std::function<void()> raise) {
  raises_.push_back(std::move(raise));
  ExecutionContext& context = value.context();
  kernels::Backend& backend = context.backend();
  const kernels::KernelContext& kernel = context.kernel_context();
  const OutputMemory memory(context, MemoryKind::kDevice);
  const Tensor square = empty(context, {1}, DType::kFloat64);
  copy_into(square, value);
  backend.unary(kernel, UnaryOp::kAdd, square.view(), square.view(), -expected);
  backend.binary(kernel, BinaryOp::kMul, square.view(), square.view(), square.view());
  if (squares_)
    backend.binary(kernel, BinaryOp::kAdd, squares_.view(), squares_.view(), square.view());
  else
    squares_ = square;
}

void DeferredChecks::spoil(const Tensor& value) const {
  if (!squares_) return;
  ExecutionContext& context = value.context();
  kernels::Backend& backend = context.backend();
  const kernels::KernelContext& kernel = context.kernel_context();
  // The root of 0 is 0, that of a negative number is NaN.
  const Tensor root = empty(context, {1}, DType::kFloat64);
  backend.unary(kernel, UnaryOp::kNeg, root.view(), squares_.view(), 0.0);
  backend.unary(kernel, UnaryOp::kSqrt, root.view(), root.view(), 0.0);
  const Tensor term = empty_like(value);
  copy_into(term, root);
  backend.binary(kernel, BinaryOp::kAdd, value.view(), value.view(), term.view());
}

void DeferredChecks::raise() const {
  for (const std::function<void()>& raise : raises_) raise();
}

}  // namespace meshloom
