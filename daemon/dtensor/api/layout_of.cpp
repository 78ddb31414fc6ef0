// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/layout_of.h"

#include "kernels/base/error.h"

namespace meshloom::dtensor {

DistributedEngine& engine_of(const Tensor& x, const char* call) {
  check(x.defined() && x.has_layout(), "{}: the tensor has no layout", call);
  auto* engine = dynamic_cast<DistributedEngine*>(x.layout()->engine);
  check_internal(engine != nullptr, "a layout of an unknown engine");
  return *engine;
}

planner::SpecPtr layout_for(DistributedEngine& engine, const planner::Placements& placements,
                            const Shape& shape, const char* call, planner::ShardOrder order) {
  const planner::MeshPtr& mesh = engine.context().mesh.layout();
  check(static_cast<int>(placements.size()) == mesh->ndim(),
        "{}: {} placements {} for the mesh {} of {} dims", call, placements.size(),
        planner::to_string(placements), to_string(*mesh), mesh->ndim());
  return engine.intern(std::make_shared<const planner::DTensorSpec>(
      mesh, planner::normalize_placements(placements, shape.size()), shape, std::move(order)));
}

planner::SpecPtr recorded_grad_spec(const Tensor& x) {
  TensorLayout& layout = *x.layout();
  const bool recorded = layout.local.requires_grad() && layout.local.context().grad_enabled();
  if (recorded && layout.local.is_leaf())
    return hold_gradient(layout, layout.engine->gradient_of(layout.spec));
  return gradient_spec(x);
}

Tensor wrap(Tensor local, const planner::SpecPtr& spec, DistributedEngine& engine,
            const planner::SpecPtr& grad_spec) {
  Tensor x = with_layout(std::move(local), spec, engine);
  x.layout()->grad_spec = grad_spec;
  return x;
}

}  // namespace meshloom::dtensor
