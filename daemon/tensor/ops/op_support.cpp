// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/op_support.h"

#include "daemon/tensor/deferred_checks.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {

void check_floating(const char* op, const Tensor& x) {
  check(dtype_is_floating(x.dtype()), "{}: expected a floating dtype, got {}", op,
        dtype_name(x.dtype()));
}

void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  check(a.dtype() == b.dtype(), "{}: inputs must have one dtype, got {} and {}", op,
        dtype_name(a.dtype()), dtype_name(b.dtype()));
}

void check_dtype(const char* op, const char* what, const Tensor& x, DType expected) {
  check(x.dtype() == expected, "{}: {} must be {}, got {}", op, what, dtype_name(expected),
        dtype_name(x.dtype()));
}

void check_value(const Tensor& value, double expected, std::function<void()> raise) {
  if (DeferredChecks* deferred = value.context().deferred_checks())
    deferred->add(value, expected, std::move(raise));
  else
    raise();
}

void check_indices(const char* op, const char* what, const Tensor& x, std::int64_t limit,
                   std::optional<std::int64_t> allowed) {
  ExecutionContext& context = x.context();
  const OutputMemory memory(context, MemoryKind::kDevice);
  const Tensor found = empty(context, {2}, DType::kInt64);
  context.backend().first_id_outside(context.kernel_context(), found.view(), contiguous(x).view(),
                                     limit, allowed);
  const Tensor index = alias(found, {1}, {1}), id = alias(found, {1}, {1}, 1);
  check_value(index, -1.0, [op, what, index, id, limit] {
    const auto at = static_cast<std::int64_t>(index.item());
    if (at >= 0)
      throw InvalidArgument(fmt::format("{}: {} at element {} is {}, outside [0, {})", op, what, at,
                                        static_cast<std::int64_t>(id.item()), limit));
  });
}

Tensor alias(const Tensor& x, const Shape& shape, const Strides& strides, std::int64_t offset) {
  const TensorImpl& source = *x.impl();
  auto impl = std::make_shared<TensorImpl>();
  impl->context = source.context;
  impl->storage = source.storage;
  impl->offset = source.offset + offset;
  impl->shape = shape;
  impl->strides = strides;
  impl->dtype = source.dtype;
  return Tensor(std::move(impl));
}

TensorView broadcast_view(const Tensor& x, const Shape& shape) {
  TensorView view = x.view();
  if (view.shape == shape) return view;
  const int shift = shape.size() - view.ndim();
  Strides strides = shape;
  for (int i = 0; i < shape.size(); ++i) {
    const bool repeated = i < shift || (view.shape[i - shift] == 1 && shape[i] != 1);
    strides[i] = repeated ? 0 : view.strides[i - shift];
  }
  view.shape = shape;
  view.strides = strides;
  return view;
}

Shape rows_shape(const Shape& shape) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return {rows, shape.back()};
}

TensorView rows_view(const Tensor& x) {
  TensorView view = x.view();
  view.shape = rows_shape(view.shape);
  view.strides = contiguous_strides(view.shape);
  return view;
}

Tensor empty_heads(ExecutionContext& context, const Shape& shape, DType dtype) {
  const Tensor memory = empty(context, {shape[0], shape[2], shape[1], shape[3]}, dtype);
  const Strides& s = memory.strides();
  return alias(memory, shape, {s[0], s[2], s[1], s[3]});
}

Tensor reduce_to_shape(const Tensor& grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  const int shift = grad.ndim() - shape.size();
  Dims dims;
  for (int i = 0; i < grad.ndim(); ++i)
    if (i < shift || (shape[i - shift] == 1 && grad.shape()[i] != 1)) dims.push_back(i);
  const Tensor summed = dims.empty() ? grad : sum(grad, dims, true);
  return reshape(summed, shape);
}

Tensor converted(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor result = empty(x.context(), x.shape(), dtype);
  copy_into(result, x);
  return result;
}

DType accumulation_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

ParamGrad::ParamGrad(autograd::GradSink& sink, int input, const Tensor& param)
    : sink_(sink), input_(input), param_(param) {
  if (!param || !sink.wants(input)) return;
  if (const auto leaf = sink.leaf_buffer(input)) {
    view_ = leaf->view;
    accumulate_ = leaf->accumulate;
    return;
  }
  own_ = empty(param.context(), param.shape(), accumulation_dtype(param.dtype()));
  view_ = own_.view();
}

void ParamGrad::clear_if_empty() {
  if (!wanted() || accumulate_) return;
  ExecutionContext& context = param_.context();
  context.backend().fill(context.kernel_context(), view_, 0.0);
  accumulate_ = true;
}

void ParamGrad::finish() {
  if (!wanted()) return;
  if (own_)
    sink_.emit(input_, converted(own_, param_.dtype()));
  else
    sink_.leaf_done(input_);
}

bool common_accumulate(ParamGrad& a, ParamGrad& b) {
  if (a.wanted() && b.wanted() && a.accumulate() != b.accumulate()) {
    a.clear_if_empty();
    b.clear_if_empty();
  }
  return a.wanted() ? a.accumulate() : b.accumulate();
}

}  // namespace meshloom::ops
