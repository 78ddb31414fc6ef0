// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/engine_shared.h"

#include "daemon/tensor/autograd/node.h"

namespace meshloom::dtensor {
namespace {

bool gone(const SharedCopy& copy) {
  const std::shared_ptr<autograd::Node> node = copy.node.lock();
  return !node || node->released() || copy.storage.expired();
}

/// An identity of the tensor may be made again as the tensor itself may.
void inherit_recipe(const TensorLayout& layout, TensorImpl& copy) {
  if (copy.storage == layout.local.storage()) copy.recompute = layout.local.impl()->recompute;
}

}  // namespace

Tensor find_copy(TensorLayout& layout, const planner::SpecPtr& spec,
                 const planner::SpecPtr& grad_of) {
  if (layout.copies.empty()) return {};
  ExecutionContext& context = layout.local.context();
  for (const SharedCopy& c : layout.copies) {
    // The two runs of an activation checkpoint have graphs of their own.
    if (c.spec != spec || c.grad_of != grad_of || c.frame != context.checkpoint_frame()) continue;
    std::shared_ptr<Storage> storage = c.storage.lock();
    std::shared_ptr<autograd::Node> node = c.node.lock();
    if (!storage || !node || node->released()) continue;
    auto impl = std::make_shared<TensorImpl>();
    impl->context = &context;
    impl->storage = std::move(storage);
    impl->offset = c.offset;
    impl->shape = c.shape;
    impl->strides = c.strides;
    impl->dtype = layout.local.dtype();
    impl->requires_grad = true;
    impl->grad_fn = std::move(node);
    impl->output_index = c.output_index;
    inherit_recipe(layout, *impl);
    return Tensor(std::move(impl));
  }
  return {};
}

void keep_copy(TensorLayout& layout, const Tensor& copy, const planner::SpecPtr& spec,
               const planner::SpecPtr& grad_of) {
  if (!copy.grad_fn()) return;
  inherit_recipe(layout, *copy.impl());
  std::erase_if(layout.copies, gone);
  layout.copies.push_back({spec, grad_of, copy.grad_fn(), copy.impl()->output_index, copy.storage(),
                           copy.storage_offset(), copy.shape(), copy.strides(),
                           layout.local.context().checkpoint_frame()});
}

}  // namespace meshloom::dtensor
