// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/layout.h"

#include "kernels/base/error.h"

namespace meshloom {

Tensor with_layout(Tensor local, const planner::SpecPtr& spec, LayoutEngine& engine) {
  check_internal(local.defined() && !local.has_layout(), "with_layout: expected a local tensor");
  return with_interned_layout(std::move(local), engine.intern(spec), engine);
}

Tensor with_interned_layout(Tensor local, planner::SpecPtr spec, LayoutEngine& engine) {
  auto impl = std::make_shared<TensorImpl>();
  impl->context = &local.context();
  impl->shape = spec->shape();
  impl->strides = contiguous_strides(spec->shape());
  impl->dtype = local.dtype();
  auto layout = std::make_shared<TensorLayout>();
  layout->spec = std::move(spec);
  layout->engine = &engine;
  layout->local = std::move(local);
  impl->layout = std::move(layout);
  return Tensor(std::move(impl));
}

planner::SpecPtr gradient_spec(const Tensor& x) {
  check_internal(x.has_layout(), "gradient_spec: expected a tensor with a layout");
  const TensorLayout& layout = *x.layout();
  return layout.grad_spec ? layout.grad_spec : layout.engine->gradient_of(layout.spec);
}

const planner::SpecPtr& hold_gradient(TensorLayout& leaf, const planner::SpecPtr& of_use) {
  if (!leaf.grad_spec) {
    leaf.grad_spec = of_use;
    leaf.grad_spec_of_uses = true;
  }
  if (leaf.grad_spec_of_uses && !(*leaf.grad_spec == *of_use))
    throw FailedPrecondition(fmt::format(
        "a leaf of layout {} has a gradient in {} by one use and in {} by another: set its "
        "grad_spec when it is laid out",
        planner::to_string(*leaf.spec), planner::to_string(*leaf.grad_spec),
        planner::to_string(*of_use)));
  return leaf.grad_spec;
}

}  // namespace meshloom
