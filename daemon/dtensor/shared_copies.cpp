// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/shared_copies.h"

#include "daemon/tensor/autograd/node.h"

namespace meshloom::dtensor {
namespace {

bool gone(const SharedCopy& copy) {
  const std::shared_ptr<autograd::Node> node = copy.node.lock();
  return !node || node->released();
}

bool is_identity(const RedistributeSpecs& use) { return use.from == use.to; }

}  // namespace

Tensor find_copy(TensorLayout& layout, const RedistributeSpecs& use) {
  if (layout.copies.empty()) return {};
  ExecutionContext& context = layout.local.context();
  for (const SharedCopy& c : layout.copies) {
    // The two runs of an activation checkpoint have graphs of their own.
    if (c.spec != use.to || c.grad_of != use.grad_of_to || c.frame != context.checkpoint_frame())
      continue;
    std::shared_ptr<autograd::Node> node = c.node.lock();
    if (!node || node->released()) continue;
    auto impl = std::make_shared<TensorImpl>();
    impl->context = &context;
    impl->storage = c.storage;
    impl->offset = c.offset;
    impl->shape = c.shape;
    impl->strides = c.strides;
    impl->dtype = layout.local.dtype();
    impl->requires_grad = true;
    impl->grad_fn = std::move(node);
    impl->output_index = c.output_index;
    if (is_identity(use)) impl->recompute = layout.local.impl()->recompute;
    return Tensor(std::move(impl));
  }
  return {};
}

void keep_copy(TensorLayout& layout, const Tensor& copy, const RedistributeSpecs& use) {
  if (is_identity(use)) copy.impl()->recompute = layout.local.impl()->recompute;
  std::erase_if(layout.copies, gone);
  // A parameter lives for ever, and a gathered copy of it would too.
  if (!copy.grad_fn() || (layout.local.is_leaf() && !is_identity(use))) return;
  layout.copies.push_back({use.to, use.grad_of_to, copy.grad_fn(), copy.impl()->output_index,
                           copy.storage(), copy.storage_offset(), copy.shape(), copy.strides(),
                           layout.local.context().checkpoint_frame()});
}

}  // namespace meshloom::dtensor
