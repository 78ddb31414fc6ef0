// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/redistribute_tensor.h"

#include "daemon/dtensor/api/layout_of.h"

namespace meshloom::dtensor {

Tensor redistribute(const Tensor& x, const planner::SpecPtr& to, const RedistributeDtypes& dtypes,
                    const planner::SpecPtr& grad_of_result) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  const planner::SpecPtr& from = x.layout()->spec;
  const bool casts = dtypes.forward || dtypes.backward;
  if (!casts && (from == to || from == engine.intern(to))) return x;
  return redistribute_async(x, engine, to, dtypes, grad_of_result).wait();
}

Tensor redistribute(const Tensor& x, const planner::Placements& placements,
                    const RedistributeDtypes& dtypes) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  // Asking for the layout that x has is common, and cheaper than making that layout again.
  const planner::DTensorSpec& from = *x.layout()->spec;
  const bool has =
      from.placements() == placements && from.default_order() && !from.has_dim_orders();
  if (has && !dtypes.forward && !dtypes.backward) return x;
  return redistribute(x, layout_for(engine, placements, x.shape(), "redistribute"), dtypes);
}

Tensor redistribute(const Tensor& x, DistributedEngine& target,
                    const planner::Placements& placements, const RedistributeDtypes& dtypes) {
  return redistribute(x, target, layout_for(target, placements, x.shape(), "redistribute"), dtypes);
}

Tensor redistribute(const Tensor& x, DistributedEngine& target, const planner::SpecPtr& to,
                    const RedistributeDtypes& dtypes) {
  if (&engine_of(x, "redistribute") == &target) return redistribute(x, to, dtypes);
  return redistribute_async(x, target, to, dtypes).wait();
}

Tensor TensorWork::wait() { return wrap(work_.wait(), specs_.to, *engine_, specs_.grad_of_to); }

TensorWork redistribute_async(const Tensor& x, const planner::Placements& placements,
                              const RedistributeDtypes& dtypes) {
  return redistribute_async(x, engine_of(x, "redistribute"), placements, dtypes);
}

TensorWork redistribute_async(const Tensor& x, const planner::SpecPtr& to,
                              const RedistributeDtypes& dtypes) {
  return redistribute_async(x, engine_of(x, "redistribute"), to, dtypes);
}

TensorWork redistribute_async(const Tensor& x, DistributedEngine& target,
                              const planner::Placements& placements,
                              const RedistributeDtypes& dtypes) {
  return redistribute_async(x, target, layout_for(target, placements, x.shape(), "redistribute"),
                            dtypes);
}

TensorWork redistribute_async(const Tensor& x, DistributedEngine& target,
                              const planner::SpecPtr& layout, const RedistributeDtypes& dtypes,
                              const planner::SpecPtr& grad_of_result) {
  DistributedEngine& engine = engine_of(x, "redistribute");
  const planner::SpecPtr to = target.intern(layout);
  const planner::SpecPtr grad_of_to =
      grad_of_result ? target.intern(grad_of_result) : target.gradient_of(to);
  const RedistributeSpecs specs{x.layout()->spec, to, grad_of_to, recorded_grad_spec(x)};
  const RedistributeMeshes meshes(engine.context().mesh, target.context().mesh,
                                  target.context().plans);
  return TensorWork(RedistributeWork(x.layout()->local, specs, meshes, dtypes), specs, target);
}

}  // namespace meshloom::dtensor
