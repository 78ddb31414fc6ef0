// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/style_mesh.h"

#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::Placement;
using planner::SpecPtr;

/// How the gradient of a gathered tensor may be held: Partial where a shard became whole.
SpecPtr summands_of(const SpecPtr& from, const SpecPtr& to, LayoutEngine& engine) {
  planner::Placements placements = to->placements();
  bool any = false;
  for (std::size_t d = 0; d < placements.size(); ++d) {
    const bool gathered = from->placements()[d].is_shard() && placements[d].is_replicate();
    if (gathered) placements[d] = Placement::partial_of(planner::PartialOp::kSum);
    any = any || gathered;
  }
  const SpecPtr plain = engine.gradient_of(to);
  if (!any) return plain;
  // What is neither gathered nor whole keeps its place; Partial of `to` itself is whole again.
  for (std::size_t d = 0; d < placements.size(); ++d)
    if (to->placements()[d].is_partial()) placements[d] = Placement::replicate();
  return engine.intern(std::make_shared<const planner::DTensorSpec>(
      to->mesh_ptr(), placements, to->shape(), to->shard_order()));
}

}  // namespace

Tensor wrap_local(const Tensor& local, const SpecPtr& spec, const StyleMesh& mesh) {
  const Shape expected = spec->local_shape(mesh.context.mesh.coordinates());
  check(local.shape() == expected,
        "a local tensor of shape {} is not this rank's part {} of {} in layout {}", local.shape(),
        expected, spec->shape(), *spec);
  const SpecPtr own = mesh.engine.intern(spec);
  Tensor wrapped = with_layout(local, own, mesh.engine);
  wrapped.layout()->grad_spec = mesh.engine.gradient_of(own);
  return wrapped;
}

Tensor change_layout(const Tensor& x, const SpecPtr& to, bool partial_grad, const StyleMesh& mesh) {
  const SpecPtr from = x.layout()->spec;
  const SpecPtr target = mesh.engine.intern(to);
  if (from == target) return x;
  const SpecPtr grad_of_to =
      partial_grad ? summands_of(from, target, mesh.engine) : mesh.engine.gradient_of(target);
  const Tensor local = dtensor::redistribute_local(
      x.layout()->local, {from, target, grad_of_to, gradient_spec(x)}, mesh.context);
  Tensor result = with_layout(local, target, mesh.engine);
  result.layout()->grad_spec = grad_of_to;
  return result;
}

Tensor unwrap_local(const Tensor& x, const StyleMesh& mesh) {
  const SpecPtr& spec = x.layout()->spec;
  const SpecPtr grad_of_local = mesh.engine.gradient_of(spec);
  const SpecPtr held = gradient_spec(x);
  if (held == grad_of_local || *held == *grad_of_local) return x.layout()->local;
  return dtensor::redistribute_local(x.layout()->local, {spec, spec, grad_of_local, held},
                                     mesh.context);
}

}  // namespace meshloom::parallel
