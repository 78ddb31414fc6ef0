// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/distribute_tensor.h"

#include "daemon/dtensor/api/layout_of.h"
#include "daemon/dtensor/boxes.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

using planner::DTensorSpec;
using planner::LocalPart;
using planner::Placements;
using planner::SpecPtr;

void check_source(const Tensor& tensor, const DTensorSpec& layout,
                  std::optional<int> src_data_rank) {
  check(!layout.has_partial(), "distribute_tensor: Partial placements {} hold no tensor's values",
        planner::to_string(layout.placements()));
  check(tensor.is_leaf(), "distribute_tensor: a tensor that was computed (by {}); expected a leaf",
        tensor.grad_fn() ? "an op with a gradient" : "an op");
  if (!src_data_rank) return;
  for (const planner::MeshDim& dim : layout.mesh().dims())
    check(*src_data_rank >= 0 && *src_data_rank < dim.size,
          "distribute_tensor: source rank {} is outside the mesh {}", *src_data_rank,
          to_string(layout.mesh()));
}

/// Mesh dims in the order in which they are cut, then those that replicate.
std::vector<int> cutting_order(const DTensorSpec& layout) {
  std::vector<int> order;
  for (const planner::DimShardOrder& cuts : layout.shard_order())
    order.insert(order.end(), cuts.mesh_dims.begin(), cuts.mesh_dims.end());
  for (int d = 0; d < layout.mesh().ndim(); ++d)
    if (layout.placement(d).is_replicate()) order.push_back(d);
  return order;
}

/// The layout with the first `count` cuts of `order` done and the rest replicated.
DTensorSpec partly_cut(const DTensorSpec& layout, const std::vector<int>& order,
                       std::size_t count) {
  Placements placements(layout.placements().size(), planner::Placement::replicate());
  std::vector<planner::DimOrderPtr> dim_orders(layout.has_dim_orders() ? placements.size() : 0);
  planner::ShardOrder cuts;
  for (std::size_t i = 0; i < count; ++i) {
    const auto m = static_cast<std::size_t>(order[i]);
    placements[m] = layout.placements()[m];
    if (!placements[m].is_shard()) continue;
    if (!dim_orders.empty()) dim_orders[m] = layout.dim_order(order[i]);
    if (cuts.empty() || cuts.back().tensor_dim != placements[m].dim)
      cuts.push_back({placements[m].dim, {}});
    cuts.back().mesh_dims.push_back(order[i]);
  }
  return DTensorSpec(layout.mesh_ptr(), placements, layout.shape(), cuts, dim_orders);
}

/// Sends each rank along `mesh_dim` its part of `value`, which the source holds in `before`.
Tensor scatter_along(const Tensor& value, const DTensorSpec& before, const DTensorSpec& after,
                     int mesh_dim, int source, DeviceMesh& mesh) {
  ExecutionContext& context = value.context();
  comm::ProcessGroup& group = mesh.group(mesh_dim);
  const LocalPart held = before.local_part(mesh.coordinates());
  std::vector<Tensor> parts;
  std::vector<TensorView> views;
  for (int r = 0; group.rank() == source && r < group.size(); ++r) {
    std::vector<int> at = mesh.coordinates();
    at[static_cast<std::size_t>(mesh_dim)] = r;
    const LocalPart part = after.local_part(at);
    parts.push_back(empty(context, part.shape, value.dtype()));
    copy_boxes(context.kernel_context(), context.backend(), common_boxes(held, part),
               parts.back().view(), value.view());
    views.push_back(parts.back().view());
  }
  const Tensor mine = group.rank() == source
                          ? parts[static_cast<std::size_t>(source)]
                          : empty(context, after.local_shape(mesh.coordinates()), value.dtype());
  group.scatter(mine.view(), views, source)->wait_host();
  return mine;
}

Tensor from_source(const Tensor& tensor, const DTensorSpec& layout, int source, DeviceMesh& mesh) {
  const std::vector<int> order = cutting_order(layout);
  Tensor value = tensor;
  bool owned = false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (layout.mesh().dim_size(order[i]) == 1) continue;
    if (layout.placement(order[i]).is_shard()) {
      value = scatter_along(value, partly_cut(layout, order, i), partly_cut(layout, order, i + 1),
                            order[i], source, mesh);
    } else {
      if (!owned) {
        const Tensor copy = empty(value.context(), value.shape(), value.dtype());
        copy_into(copy, value);
        value = copy;
      }
      mesh.group(order[i]).broadcast(value.view(), source)->wait_host();
    }
    owned = true;
  }
  return value;
}

/// A copy of this rank's part of a tensor that it holds whole.
Tensor cut_own(const Tensor& tensor, const DTensorSpec& layout, const DeviceMesh& mesh) {
  ExecutionContext& context = tensor.context();
  const LocalPart part = layout.local_part(mesh.coordinates());
  const DTensorSpec whole(layout.mesh_ptr(),
                          Placements(layout.placements().size(), planner::Placement::replicate()),
                          layout.shape());
  const Tensor mine = empty(context, part.shape, tensor.dtype());
  copy_boxes(context.kernel_context(), context.backend(),
             common_boxes(whole.local_part(mesh.coordinates()), part), mine.view(), tensor.view());
  return mine;
}

}  // namespace

Tensor distribute_tensor(const Tensor& tensor, DistributedEngine& engine, const SpecPtr& layout,
                         std::optional<int> src_data_rank) {
  const SpecPtr to = engine.intern(layout);
  if (tensor.has_layout()) {
    check(tensor.layout()->engine == &engine && tensor.layout()->spec == to,
          "distribute_tensor: the tensor has layout {} on mesh {} already, asked for {} on mesh {}",
          to_string(*tensor.layout()->spec), to_string(tensor.layout()->spec->mesh()),
          to_string(*to), to_string(to->mesh()));
    return tensor;
  }
  check(tensor.shape() == to->shape(), "distribute_tensor: a tensor of shape {}, a layout of {}",
        to_string(tensor.shape()), to_string(to->shape()));
  check_source(tensor, *to, src_data_rank);
  DeviceMesh& mesh = engine.context().mesh;
  const NoGradGuard no_grad(tensor.context());
  Tensor local;
  if (!mesh.member())
    local = empty_local(tensor.context(), tensor.dtype());
  else if (src_data_rank)
    local = from_source(tensor.detach(), *to, *src_data_rank, mesh);
  else
    local = cut_own(tensor, *to, mesh);
  // A leaf of its own, also where nothing had to be moved.
  if (local.impl() == tensor.impl()) local = tensor.detach();
  local = ops::contiguous(local);
  if (tensor.requires_grad()) local.set_requires_grad(true);
  return with_layout(local, to, engine);
}

Tensor distribute_tensor(const Tensor& tensor, DistributedEngine& engine,
                         const Placements& placements, std::optional<int> src_data_rank) {
  return distribute_tensor(tensor, engine,
                           layout_for(engine, placements, tensor.shape(), "distribute_tensor"),
                           src_data_rank);
}

}  // namespace meshloom::dtensor
