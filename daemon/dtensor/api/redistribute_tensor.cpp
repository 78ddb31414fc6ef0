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
  const planner::SpecPtr grad_of_to = engine.gradient_of(target);
  Tensor local = redistribute_local(x.layout()->local, from, target, grad_of_to,
                                    recorded_grad_spec(x), engine.context(), dtypes);
  return wrap(std::move(local), target, engine, grad_of_to);
}

Tensor redistribute(const Tensor& x, const planner::Placements& placements,
                    const RedistributeDtypes& dtypes) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  if (has_layout_now(x, placements) && !dtypes.forward && !dtypes.backward) return x;
  return redistribute(x, layout_for(engine, placements, x.shape(), "redistribute"), dtypes);
}

Tensor redistribute(const Tensor& x, DistributedEngine& target,
                    const planner::Placements& placements, const RedistributeDtypes& dtypes) {
  return redistribute(x, target, layout_for(target, placements, x.shape(), "redistribute"), dtypes);
}

Tensor redistribute(const Tensor& x, DistributedEngine& target, const planner::SpecPtr& layout,
                    const RedistributeDtypes& dtypes) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  if (&engine == &target) return redistribute(x, layout, dtypes);
  const planner::SpecPtr to = target.intern(layout);
  const planner::SpecPtr grad_of_to = target.gradient_of(to);
  Tensor local = redistribute_across(x.layout()->local, x.layout()->spec, engine.context().mesh, to,
                                     target.context().mesh, grad_of_to, recorded_grad_spec(x),
                                     target.context().plans, dtypes);
  return wrap(std::move(local), to, target, grad_of_to);
}

Tensor TensorWork::wait() { return wrap(work_.wait(), to_, *engine_, engine_->gradient_of(to_)); }

TensorWork start_redistribute(const Tensor& x, const planner::Placements& placements,
                              const RedistributeDtypes& dtypes) {
  return start_redistribute(x, engine_of(x, "redistribute"), placements, dtypes);
}

TensorWork start_redistribute(const Tensor& x, const planner::SpecPtr& to,
                              const RedistributeDtypes& dtypes) {
  return start_redistribute(x, engine_of(x, "redistribute"), to, dtypes);
}

TensorWork start_redistribute(const Tensor& x, DistributedEngine& target,
                              const planner::Placements& placements,
                              const RedistributeDtypes& dtypes) {
  return start_redistribute(x, target, layout_for(target, placements, x.shape(), "redistribute"),
                            dtypes);
}

TensorWork start_redistribute(const Tensor& x, DistributedEngine& target,
                              const planner::SpecPtr& layout, const RedistributeDtypes& dtypes) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  const planner::SpecPtr to = target.intern(layout), &from = x.layout()->spec;
  const planner::SpecPtr grad_of_to = target.gradient_of(to), grad_of_from = recorded_grad_spec(x);
  const Tensor& local = x.layout()->local;
  const MeshContext &here = engine.context(), &there = target.context();
  if (&engine == &target)
    return TensorWork(redistribute_async(local, from, to, grad_of_to, grad_of_from, here, dtypes),
                      to, target);
  return TensorWork(redistribute_across_async(local, from, here.mesh, to, there.mesh, grad_of_to,
                                              grad_of_from, there.plans, dtypes),
                    to, target);
}

}  // namespace meshloom::dtensor
