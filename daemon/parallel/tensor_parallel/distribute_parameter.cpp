// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/distribute_parameter.h"

#include "daemon/tensor/ops/shape.h"

namespace meshloom::parallel {
namespace {

using planner::SpecPtr;

/// This rank's part of a whole tensor, in memory of its own.
Tensor part_of(const Tensor& whole, const planner::LocalPart& part) {
  Tensor window = whole.detach();
  for (int dim = 0; dim < part.shape().size(); ++dim) {
    std::vector<Tensor> pieces;
    for (const planner::ShardRange& range : part.ranges(dim))
      pieces.push_back(ops::slice(window, dim, range.begin, range.end));
    if (pieces.empty()) pieces.push_back(ops::slice(window, dim, 0, 0));
    window = pieces.size() == 1 ? pieces.front() : ops::cat(pieces, dim);
  }
  const Tensor copy = empty(whole.context(), part.shape(), whole.dtype());
  copy_into(copy, window);
  return copy;
}

/// The layout with Partial on every acting dim that holds the tensor whole.
SpecPtr summands_of(const SpecPtr& spec, const StyleMesh& mesh) {
  planner::Placements placements = spec->placements();
  for (const int d : mesh.dims.acting()) {
    planner::Placement& placement = placements[static_cast<std::size_t>(d)];
    if (placement.is_replicate())
      placement = planner::Placement::partial_of(planner::PartialOp::kSum);
  }
  return mesh.engine.intern(planner::with_placements(*spec, std::move(placements)));
}

}  // namespace

void distribute_parameter(nn::Parameter& parameter, const planner::ParameterSpec& layout,
                          const StyleMesh& mesh, std::optional<int> src_data_rank) {
  Tensor& value = parameter.value;
  const SpecPtr spec = mesh.engine.intern(layout.spec);
  const NoGradGuard no_grad(value.context());
  const bool wanted = value.requires_grad();
  const planner::LocalPart part = spec->local_part(mesh.mesh().coordinates());
  Tensor local;
  if (!has_memory(value)) {
    local = deferred(value.context(), part.shape(), value.dtype());
  } else {
    Tensor whole = value.detach();
    if (src_data_rank && mesh.dims.parts() > 1) {
      whole = ops::contiguous(whole);
      mesh.mesh().group(mesh.dims.acting()).broadcast(whole.view(), *src_data_rank)->wait_host();
    }
    local = part_of(whole, part);
  }
  if (wanted) local.set_requires_grad(true);
  value = with_interned_layout(local, spec, mesh.engine);
  value.layout()->grad_spec =
      layout.summands ? summands_of(spec, mesh) : mesh.engine.gradient_of(spec);
}

}  // namespace meshloom::parallel
