// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/tensor.h"

#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/autograd/node.h"
#include "daemon/tensor/layout.h"
#include "kernels/base/error.h"

namespace meshloom {
namespace {

TensorImpl& deref(const std::shared_ptr<TensorImpl>& impl) {
  check_internal(impl != nullptr, "an undefined tensor was used");
  return *impl;
}

/// The tensor whose place in the graph is asked for.
const TensorImpl& graph_impl(const std::shared_ptr<TensorImpl>& impl) {
  const TensorImpl& t = deref(impl);
  return t.layout ? *t.layout->local.impl() : t;
}

[[noreturn]] void refuse_memory(const TensorImpl& t) {
  throw FailedPrecondition(fmt::format(
      "the memory of a tensor of shape {} with layout {} was asked for: this rank holds a part of "
      "it; use to_local or full_tensor",
      to_string(t.shape), planner::to_string(*t.layout->spec)));
}

}  // namespace

ExecutionContext& Tensor::context() const { return *deref(impl_).context; }
DType Tensor::dtype() const { return deref(impl_).dtype; }
Device Tensor::device() const { return deref(impl_).context->device(); }
const Shape& Tensor::shape() const { return deref(impl_).shape; }
const Strides& Tensor::strides() const { return deref(impl_).strides; }
std::int64_t Tensor::storage_offset() const { return deref(impl_).offset; }
const std::shared_ptr<Storage>& Tensor::storage() const {
  if (has_layout()) refuse_memory(*impl_);
  return deref(impl_).storage;
}
const std::shared_ptr<TensorLayout>& Tensor::layout() const { return deref(impl_).layout; }

std::int64_t Tensor::size(std::int64_t dim) const {
  return shape()[normalize_dim(dim, ndim(), "size")];
}

TensorView Tensor::view() const {
  if (!impl_) return {};
  const TensorImpl& t = *impl_;
  if (t.layout) [[unlikely]]
    refuse_memory(t);
  const std::int64_t offset = t.offset * static_cast<std::int64_t>(dtype_size(t.dtype));
  return {t.storage->data() + offset, t.dtype, t.shape, t.strides, t.context->device()};
}

bool Tensor::requires_grad() const { return impl_ && graph_impl(impl_).requires_grad; }

Tensor& Tensor::set_requires_grad(bool requires_grad) {
  TensorImpl& t = deref(impl_);
  if (t.layout) {
    t.layout->local.set_requires_grad(requires_grad);
    return *this;
  }
  check(!requires_grad || dtype_is_floating(t.dtype),
        "requires_grad: a tensor of dtype {} cannot have a gradient", dtype_name(t.dtype));
  if (t.grad_fn)
    throw FailedPrecondition("requires_grad: the tensor is the result of an op, not a leaf");
  t.requires_grad = requires_grad;
  if (!requires_grad)
    t.leaf_grad.reset();
  else if (!t.leaf_grad)
    t.leaf_grad = std::make_shared<autograd::LeafGrad>(*t.context, t.shape, t.dtype);
  return *this;
}

bool Tensor::is_leaf() const { return graph_impl(impl_).grad_fn == nullptr; }
const std::shared_ptr<autograd::Node>& Tensor::grad_fn() const { return graph_impl(impl_).grad_fn; }
const std::shared_ptr<autograd::LeafGrad>& Tensor::leaf_grad() const {
  return graph_impl(impl_).leaf_grad;
}

Tensor Tensor::grad() const {
  const auto& leaf = leaf_grad();
  Tensor value = leaf ? leaf->value() : Tensor();
  if (!value || !has_layout()) return value;
  return with_layout(std::move(value), gradient_spec(*this), *layout()->engine);
}

Tensor Tensor::detach() const {
  const TensorImpl& t = deref(impl_);
  if (!requires_grad()) return *this;
  if (t.layout) return with_layout(t.layout->local.detach(), t.layout->spec, *t.layout->engine);
  auto impl = std::make_shared<TensorImpl>();
  impl->context = t.context;
  impl->storage = t.storage;
  impl->offset = t.offset;
  impl->shape = t.shape;
  impl->strides = t.strides;
  impl->dtype = t.dtype;
  return Tensor(std::move(impl));
}

double Tensor::item() const {
  check(numel() == 1, "item: the tensor has {} elements, expected 1 (shape {})", numel(), shape());
  return to_vector()[0];
}

std::vector<double> Tensor::to_vector() const {
  std::vector<double> values(static_cast<std::size_t>(numel()));
  if (!values.empty())
    context().backend().copy_to_host(context().kernel_context(),
                                     make_view(values.data(), DType::kFloat64, shape()), view());
  return values;
}

}  // namespace meshloom
