// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/deferred_checks.h"

#include <algorithm>
#include <utility>

namespace meshloom {
namespace {

using kernels::BinaryOp;
using kernels::UnaryOp;

/// Of checks whose differences lie in one tensor: a pass of a model has a few, a step some dozens.
constexpr std::int64_t kChecksOfTensor = 64;

}  // namespace

void DeferredChecks::add(const Tensor& value, double expected, std::function<void()> raise) {
  ExecutionContext& context = value.context();
  const OutputMemory memory(context, MemoryKind::kDevice);
  const std::int64_t place = static_cast<std::int64_t>(raises_.size()) % kChecksOfTensor;
  if (place == 0) differences_.push_back(zeros(context, {kChecksOfTensor}, DType::kFloat64));
  const TensorView difference = rows_of(differences_.back().view(), place, 1);
  const kernels::KernelContext& kernel = context.kernel_context();
  context.backend().copy(kernel, difference, value.view());
  context.backend().unary(kernel, UnaryOp::kAdd, difference, difference, -expected);
  raises_.push_back(std::move(raise));
}

void DeferredChecks::spoil(const Tensor& value) const {
  if (raises_.empty()) return;
  ExecutionContext& context = value.context();
  kernels::Backend& backend = context.backend();
  const kernels::KernelContext& kernel = context.kernel_context();
  const Tensor squares = empty(context, {kChecksOfTensor}, DType::kFloat64);
  const Tensor sum = empty(context, {1}, DType::kFloat64);
  const Tensor root = zeros(context, {1}, DType::kFloat64);
  for (const Tensor& some : differences_) {
    backend.binary(kernel, BinaryOp::kMul, squares.view(), some.view(), some.view());
    backend.reduce(kernel, kernels::ReduceOp::kSum, sum.view(), squares.view(), 0.0);
    backend.binary(kernel, BinaryOp::kAdd, root.view(), root.view(), sum.view());
  }
  // The root of -0 is -0, which changes no number it is added to; that of another one is NaN.
  backend.unary(kernel, UnaryOp::kNeg, root.view(), root.view(), 0.0);
  backend.unary(kernel, UnaryOp::kSqrt, root.view(), root.view(), 0.0);
  const Tensor term = empty_like(value);
  copy_into(term, root);
  backend.binary(kernel, BinaryOp::kAdd, value.view(), value.view(), term.view());
}

void DeferredChecks::raise() const {
  for (const std::function<void()>& raise : raises_) raise();
}

std::shared_ptr<Storage> DeferredChecks::room(ExecutionContext& context) const {
  const std::size_t bytes =
      differences_.size() * static_cast<std::size_t>(kChecksOfTensor) * sizeof(double);
  return context.allocator(MemoryKind::kHost).allocate(bytes);
}

void DeferredChecks::ask() const {
  if (!raises_.empty()) ask_in(*room(differences_[0].context()));
}

void DeferredChecks::ask_in(const Storage& memory) const {
  ExecutionContext& context = differences_[0].context();
  const kernels::KernelContext& kernel = context.kernel_context();
  const auto tensors = static_cast<std::int64_t>(differences_.size());
  const TensorView all = make_view(memory.data(), DType::kFloat64, {tensors * kChecksOfTensor});
  for (std::int64_t i = 0; i < tensors; ++i) {
    const TensorView host = rows_of(all, i * kChecksOfTensor, kChecksOfTensor);
    const TensorView some = differences_[static_cast<std::size_t>(i)].view();
    // The last one waits for all work before it.
    if (i + 1 < tensors)
      context.backend().copy_to_host_async(kernel, host, some);
    else
      context.backend().copy_to_host(kernel, host, some);
  }
  const auto* const first = all.as<double>();
  if (std::any_of(first, first + all.numel(), [](double value) { return value != 0.0; })) raise();
}

HostValues DeferredChecks::read(const Tensor& x, DType dtype) const {
  ExecutionContext& context = x.context();
  const kernels::KernelContext& kernel = context.kernel_context();
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * dtype_size(dtype);
  // All memory is taken before the device writes to some of it.
  auto memory = context.allocator(MemoryKind::kHost).allocate(bytes);
  const auto checks = raises_.empty() ? nullptr : room(context);
  const TensorView host = make_view(memory->data(), dtype, x.shape());
  if (bytes > 0 && !checks) context.backend().copy_to_host(kernel, host, x.view());
  if (bytes > 0 && checks) context.backend().copy_to_host_async(kernel, host, x.view());
  if (checks) ask_in(*checks);
  return {std::move(memory), x.numel()};
}

}  // namespace meshloom
