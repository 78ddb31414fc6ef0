// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/tensor.h"
#include "kernels/base/error.h"

namespace meshloom {
namespace {

std::size_t size_in_bytes(const Shape& shape, DType dtype) {
  std::int64_t bytes = 0;
  check(!__builtin_mul_overflow(numel(shape), static_cast<std::int64_t>(dtype_size(dtype)), &bytes),
        "a tensor of shape {} and {} has more than 2^63 - 1 bytes", shape, dtype_name(dtype));
  return static_cast<std::size_t>(bytes);
}

template <typename T>
Tensor from_host(ExecutionContext& context, const Shape& shape, std::span<const T> values,
                 DType host_dtype, DType dtype) {
  Tensor result = empty(context, shape, dtype);
  check(static_cast<std::int64_t>(values.size()) == result.numel(),
        "from_values: {} values given for shape {}", values.size(), shape);
  if (values.empty()) return result;
  const TensorView source = make_view(const_cast<T*>(values.data()), host_dtype, shape);
  context.backend().copy_from_host(context.kernel_context(), result.view(), source);
  return result;
}

}  // namespace

Tensor empty(ExecutionContext& context, const Shape& shape, DType dtype, MemoryKind kind) {
  check_internal(kind != MemoryKind::kHost, "empty: tensors lie in memory of the device");
  const std::size_t bytes = size_in_bytes(shape, dtype);
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &context;
  if (kind == MemoryKind::kDevice) kind = context.output_memory();
  impl->storage = context.allocator(kind).allocate(bytes);
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

Tensor deferred(ExecutionContext& context, const Shape& shape, DType dtype,
                StorageProvider* provider) {
  const std::size_t bytes = size_in_bytes(shape, dtype);
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &context;
  impl->storage = std::make_shared<Storage>(bytes, bytes > 0 ? provider : nullptr);
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}

bool has_memory(const Tensor& tensor) { return tensor.storage()->has_memory(); }

void defer(const Tensor& tensor, StorageProvider* provider) {
  const std::size_t bytes = size_in_bytes(tensor.shape(), tensor.dtype());
  TensorImpl& impl = *tensor.impl();
  impl.storage = std::make_shared<Storage>(bytes, bytes > 0 ? provider : nullptr);
  impl.offset = 0;
  impl.strides = contiguous_strides(impl.shape);
}

void materialize(const Tensor& tensor) {
  if (has_memory(tensor)) return;
  tensor.impl()->storage = tensor.context().allocator().allocate(tensor.storage()->bytes());
}

Tensor zeros(ExecutionContext& context, const Shape& shape, DType dtype, MemoryKind kind) {
  Tensor result = empty(context, shape, dtype, kind);
  context.backend().fill(context.kernel_context(), result.view(), 0.0);
  return result;
}

Tensor full(ExecutionContext& context, const Shape& shape, double value, DType dtype) {
  Tensor result = empty(context, shape, dtype);
  context.backend().fill(context.kernel_context(), result.view(), value);
  return result;
}

Tensor empty_like(const Tensor& x) { return empty(x.context(), x.shape(), x.dtype()); }

Tensor from_values(ExecutionContext& context, const Shape& shape, std::span<const float> values,
                   DType dtype) {
  return from_host(context, shape, values, DType::kFloat32, dtype);
}

Tensor from_values(ExecutionContext& context, const Shape& shape, std::span<const double> values,
                   DType dtype) {
  return from_host(context, shape, values, DType::kFloat64, dtype);
}

Tensor from_values(ExecutionContext& context, const Shape& shape,
                   std::span<const std::int64_t> values) {
  return from_host(context, shape, values, DType::kInt64, DType::kInt64);
}

Tensor from_external(ExecutionContext& context, const TensorView& view,
                     std::shared_ptr<const MemoryOwner> owner) {
  check(view.device == context.device(), "from_external: the memory is on another device");
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &context;
  impl->storage =
      std::make_shared<Storage>(static_cast<std::byte*>(view.data), view.bytes(), std::move(owner));
  impl->shape = view.shape;
  impl->strides = view.strides;
  impl->dtype = view.dtype;
  return Tensor(std::move(impl));
}

void copy_into(const Tensor& dst, const Tensor& src) {
  check(dst.shape() == src.shape(), "copy_into: shapes {} and {} differ", dst.shape(), src.shape());
  ExecutionContext& context = dst.context();
  if (dst.numel() > 0) context.backend().copy(context.kernel_context(), dst.view(), src.view());
}

}  // namespace meshloom
