// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/from_local.h"

#include "daemon/comm/agreement/given_agreement.h"
#include "daemon/dtensor/api/layout_of.h"
#include "daemon/dtensor/outside_mesh.h"
#include "daemon/tensor/autograd/function_node.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

/// The mesh dims that shard `dim`, as one factor.
std::int64_t shards_of(const planner::Placements& placements, const planner::MeshLayout& mesh,
                       int dim) {
  std::int64_t shards = 1;
  for (std::size_t m = 0; m < placements.size(); ++m)
    if (placements[m].is_shard() && placements[m].dim == dim)
      shards *= mesh.dim_size(static_cast<int>(m));
  return shards;
}

void check_part(const Tensor& local, const planner::DTensorSpec& spec, const DeviceMesh& mesh) {
  const Shape expected = spec.local_shape(mesh.coordinates());
  check(local.shape() == expected,
        "from_local: the local tensor is {}, layout {} of {} has {} on rank {}; uneven shards need "
        "the global shape and strides",
        local.shape(), spec, spec.shape(), expected, mesh.rank());
}

/// What a rank outside the mesh holds of it. Ranks record the same graph, so that all of them run
/// its collectives in backward.
Tensor outside_part(const Tensor& local, const Shape& shape) {
  Tensor none = outside_local(local.context(), shape, local.dtype());
  if (local.requires_grad()) none.set_requires_grad(true);
  return none;
}

/// How a local tensor is seen.
struct Seen {
  planner::SpecPtr spec;
  Strides strides;
};

/// Throws InvalidArgument for what does not fit on this rank.
Seen see(const Tensor& local, DistributedEngine& engine, const planner::Placements& placements,
         const FromLocalOptions& options) {
  check(local.defined() && !local.has_layout(), "from_local: expected a local tensor");
  check(options.shape.has_value() == options.strides.has_value(),
        "from_local: {} is given without {}", options.shape ? "shape" : "strides",
        options.shape ? "strides" : "shape");
  check(!options.shape || options.shape->size() == options.strides->size(),
        "from_local: strides {} for the shape {}", options.shape ? to_string(*options.strides) : "",
        options.shape ? to_string(*options.shape) : "");
  const DeviceMesh& mesh = engine.context().mesh;
  const planner::Placements known = planner::normalize_placements(
      placements, options.shape ? options.shape->size() : local.ndim());
  Shape shape = options.shape.value_or(local.shape());
  if (!options.shape)
    for (int d = 0; d < shape.size(); ++d) shape[d] *= shards_of(known, *mesh.layout(), d);
  const planner::SpecPtr spec = layout_for(engine, known, shape, "from_local", options.order);
  if (!mesh.member()) return {spec, contiguous_strides(shape)};
  check_part(local, *spec, mesh);
  if (options.strides) return {spec, *options.strides};
  // If all shards are alike, a dim outside a sharded one lies further apart.
  Strides strides = local.strides();
  for (int d = 0; d < local.ndim(); ++d)
    for (int inner = 0; inner < local.ndim(); ++inner)
      if (inner != d && local.strides()[d] > local.strides()[inner])
        strides[d] *= shards_of(known, *mesh.layout(), inner);
  return {spec, strides};
}

/// The first replica's values; the gradient passes through.
Tensor first_replica(const Tensor& local, const planner::DTensorSpec& spec, DeviceMesh& mesh) {
  if (std::none_of(spec.placements().begin(), spec.placements().end(),
                   [](const planner::Placement& p) { return p.is_replicate(); }))
    return local;
  Tensor copy = empty(local.context(), local.shape(), local.dtype());
  copy_into(copy, local.detach());
  for (int d = 0; d < spec.mesh().ndim(); ++d)
    if (spec.placement(d).is_replicate() && spec.mesh().dim_size(d) > 1)
      mesh.group(d).broadcast(copy.view(), 0)->wait_host();
  if (autograd::should_record({&local}))
    autograd::record_op(
        "from_local", {&local}, {&copy},
        [](autograd::GradOutputs grads, autograd::GradSink& sink) { sink.emit(0, grads[0]); });
  return copy;
}

}  // namespace

Tensor from_local(const Tensor& local, DistributedEngine& engine,
                  const planner::Placements& placements, const FromLocalOptions& options) {
  DeviceMesh& mesh = engine.context().mesh;
  Seen seen;
  if (options.run_check && mesh.member()) {
    comm::Given given;
    try {
      seen = see(local, engine, placements, options);
      given.text = fmt::format(
          "{} {} strides {} {}, {}{}", dtype_name(local.dtype()), to_string(seen.spec->shape()),
          to_string(seen.strides), local.requires_grad() ? "with gradient" : "without gradient",
          to_string(*seen.spec),
          options.shape ? "" : " (shards taken to be alike: if not, give the shape)");
    } catch (const InvalidArgument& error) {
      given.error = error.what();
    }
    comm::check_agreement("from_local", given, mesh.whole_group());
  } else {
    seen = see(local, engine, placements, options);
  }
  const planner::SpecPtr& spec = seen.spec;
  if (!mesh.member())
    return wrap(outside_part(local, spec->shape()), spec, engine, engine.gradient_of(spec));
  const Tensor held = options.run_check ? first_replica(local, *spec, mesh) : local;
  Tensor x = wrap(held, spec, engine, engine.gradient_of(spec));
  x.impl()->strides = seen.strides;
  return x;
}

Tensor from_local(const Tensor& local, DistributedEngine& engine, const planner::SpecPtr& layout) {
  check(local.defined() && !local.has_layout(), "from_local: expected a local tensor");
  const DeviceMesh& mesh = engine.context().mesh;
  const planner::SpecPtr spec = engine.intern(layout);
  if (mesh.member()) check_part(local, *spec, mesh);
  return wrap(mesh.member() ? local : outside_part(local, spec->shape()), spec, engine,
              engine.gradient_of(spec));
}

}  // namespace meshloom::dtensor
