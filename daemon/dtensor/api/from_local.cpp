// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/from_local.h"

#include "daemon/dtensor/api/layout_of.h"
#include "daemon/tensor/autograd/function_node.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

/// The mesh dims that cut `dim`, as one factor.
std::int64_t shards_of(const planner::Placements& placements, const planner::MeshLayout& mesh,
                       int dim) {
  std::int64_t shards = 1;
  for (std::size_t m = 0; m < placements.size(); ++m)
    if (placements[m].is_shard() && placements[m].dim == dim)
      shards *= mesh.dim_size(static_cast<int>(m));
  return shards;
}

/// Global strides where all shards are alike: a dim outside a cut one lies further apart.
Strides global_strides(const Tensor& local, const planner::Placements& placements,
                       const planner::MeshLayout& mesh) {
  Strides strides = local.strides();
  for (int d = 0; d < local.ndim(); ++d)
    for (int cut = 0; cut < local.ndim(); ++cut)
      if (cut != d && local.strides()[d] > local.strides()[cut])
        strides[d] *= shards_of(placements, mesh, cut);
  return strides;
}

/// What all ranks must agree on, as numbers.
std::vector<std::int64_t> facts_of(const Tensor& local, const Shape& shape,
                                   const Strides& strides) {
  std::vector<std::int64_t> facts = {static_cast<std::int64_t>(local.dtype()),
                                     local.requires_grad() ? 1 : 0, shape.size()};
  for (int d = 0; d < kMaxDims; ++d) {
    facts.push_back(d < shape.size() ? shape[d] : -1);
    facts.push_back(d < strides.size() ? strides[d] : -1);
  }
  return facts;
}

std::string facts_text(const std::int64_t* facts) {
  Dims shape, strides;
  for (int d = 0; d < facts[2]; ++d) {
    shape.push_back(facts[3 + 2 * d]);
    strides.push_back(facts[4 + 2 * d]);
  }
  return fmt::format("{} {} strides {}{}", dtype_name(static_cast<DType>(facts[0])),
                     to_string(shape), to_string(strides),
                     facts[1] != 0 ? " with gradient" : " without gradient");
}

/// Every rank sees every rank's facts, so all throw or none.
void check_agreement(const std::vector<std::int64_t>& mine, ExecutionContext& context,
                     comm::ProcessGroup& group) {
  const auto count = static_cast<std::int64_t>(mine.size());
  const Tensor all = empty(context, {group.size(), count}, DType::kInt64);
  std::vector<TensorView> views;
  for (int r = 0; r < group.size(); ++r)
    views.push_back(make_view(all.data<std::int64_t>() + r * count, DType::kInt64, {count}));
  const Tensor own = from_values(context, {count}, std::span<const std::int64_t>(mine));
  group.all_gather(views, own.view())->wait_host();
  const std::int64_t* first = all.data<std::int64_t>();
  for (int r = 1; r < group.size(); ++r) {
    const std::int64_t* other = first + r * count;
    if (!std::equal(first, first + count, other))
      throw InvalidArgument(fmt::format("from_local: rank 0 gives {}, rank {} gives {}",
                                        facts_text(first), r, facts_text(other)));
  }
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
  check(local.defined() && !local.has_layout(), "from_local: expected a local tensor");
  check(options.shape.has_value() == options.strides.has_value(),
        "from_local: {} is given without {}", options.shape ? "shape" : "strides",
        options.shape ? "strides" : "shape");
  DeviceMesh& mesh = engine.context().mesh;
  const planner::Placements known = planner::normalize_placements(
      placements, options.shape ? options.shape->size() : local.ndim());
  Shape shape = options.shape.value_or(local.shape());
  if (!options.shape)
    for (int d = 0; d < shape.size(); ++d) shape[d] *= shards_of(known, *mesh.layout(), d);
  const planner::SpecPtr spec = layout_for(engine, known, shape, "from_local", options.order);
  if (!mesh.member()) {
    Tensor none = empty_local(local.context(), local.dtype());
    // Ranks record the same graph, so that all of them run its collectives in backward.
    if (local.requires_grad()) none.set_requires_grad(true);
    return wrap(none, spec, engine, engine.gradient_of(spec));
  }
  const Shape expected = spec->local_shape(mesh.coordinates());
  const Strides strides = options.strides.value_or(global_strides(local, known, *mesh.layout()));
  if (options.run_check)
    check_agreement(facts_of(local, shape, strides), local.context(), mesh.whole_group());
  check(local.shape() == expected,
        "from_local: the local tensor is {}, layout {} of {} has {} on rank {}; uneven shards need "
        "the global shape and strides",
        to_string(local.shape()), to_string(*spec), to_string(shape), to_string(expected),
        mesh.rank());
  const Tensor held = options.run_check ? first_replica(local, *spec, mesh) : local;
  Tensor x = wrap(held, spec, engine, engine.gradient_of(spec));
  x.impl()->strides = strides;
  return x;
}

}  // namespace meshloom::dtensor
