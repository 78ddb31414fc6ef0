// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/redistribute_tensor.h"

#include "daemon/dtensor/api/layout_of.h"

namespace meshloom::dtensor {
namespace {

bool has_layout_now(const Tensor& x, const planner::Placements& placements) {
  const planner::DTensorSpec& spec = *x.layout()->spec;
  return spec.placements() == placements && spec.default_order() && !spec.has_dim_orders();
}

}  // namespace

Tensor redistribute(const Tensor& x, const planner::SpecPtr& to, const RedistributeDtypes& dtypes) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  const planner::SpecPtr& from = x.layout()->spec;
  if (from == to && !dtypes.forward && !dtypes.backward) return x;
  const planner::SpecPtr target = engine.intern(to);
  if (from == target && !dtypes.forward && !dtypes.backward) return x;
  const bool recorded = x.layout()->local.requires_grad();
  const planner::SpecPtr grad_of_from = recorded ? settled_grad_spec(x) : engine.gradient_of(from);
  const planner::SpecPtr grad_of_to = engine.gradient_of(target);
  Tensor local = redistribute_local(x.layout()->local, from, target, grad_of_to, grad_of_from,
                                    engine.context(), dtypes);
  return wrap(std::move(local), target, engine, grad_of_to);
}

Tensor redistribute(const Tensor& x, const planner::Placements& placements,
                    const RedistributeDtypes& dtypes) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  if (has_layout_now(x, placements) && !dtypes.forward && !dtypes.backward) return x;
  return redistribute(x, layout_for(engine, placements, x.shape(), "redistribute"), dtypes);
}

Tensor redistribute(const Tensor& x, DistributedEngine& target,
                    const planner::Placements& placements) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  if (&engine == &target) return redistribute(x, placements);
  const planner::SpecPtr to = layout_for(target, placements, x.shape(), "redistribute");
  settled_grad_spec(x);
  Tensor local = redistribute_across(x.layout()->local, x.layout()->spec, engine.context().mesh, to,
                                     target.context().mesh, target.context().plans);
  return wrap(std::move(local), to, target, target.gradient_of(to));
}

Tensor TensorWork::wait() { return wrap(work_.wait(), to_, *engine_, engine_->gradient_of(to_)); }

TensorWork start_redistribute(const Tensor& x, const planner::Placements& placements) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  const planner::SpecPtr to = layout_for(engine, placements, x.shape(), "redistribute");
  const planner::SpecPtr grad_of_from = settled_grad_spec(x);
  return TensorWork(redistribute_async(x.layout()->local, x.layout()->spec, to,
                                       engine.gradient_of(to), grad_of_from, engine.context()),
                    to, engine);
}

}  // namespace meshloom::dtensor
