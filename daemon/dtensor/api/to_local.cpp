// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/to_local.h"

#include "daemon/dtensor/api/layout_of.h"

namespace meshloom::dtensor {
namespace {

planner::SpecPtr grad_layout(DistributedEngine& engine, const planner::SpecPtr& of,
                             const std::optional<planner::Placements>& placements,
                             const char* call) {
  if (!placements) return engine.gradient_of(of);
  return layout_for(engine, *placements, of->shape(), call);
}

/// x's local tensor in layout `to`, its gradient held in `grad_of_to`.
Tensor local_in(const Tensor& x, DistributedEngine& engine, const planner::SpecPtr& to,
                const planner::SpecPtr& grad_of_to) {
  const TensorLayout& layout = *x.layout();
  return redistribute_local(layout.local, {layout.spec, to, grad_of_to, recorded_grad_spec(x)},
                            engine.context());
}

}  // namespace

Tensor to_local(const Tensor& x, const std::optional<planner::Placements>& grad_placements) {
  DistributedEngine& engine = engine_of(x, "to_local");
  const planner::SpecPtr& spec = x.layout()->spec;
  return local_in(x, engine, spec, grad_layout(engine, spec, grad_placements, "to_local"));
}

Tensor full_tensor(const Tensor& x, const std::optional<planner::Placements>& grad_placements) {
  DistributedEngine& engine = engine_of(x, "full_tensor");
  const planner::SpecPtr& spec = x.layout()->spec;
  const planner::Placements whole(spec->placements().size(), planner::Placement::replicate());
  const planner::SpecPtr to = layout_for(engine, whole, spec->shape(), "full_tensor");
  return local_in(x, engine, to, grad_layout(engine, to, grad_placements, "full_tensor"));
}

}  // namespace meshloom::dtensor
