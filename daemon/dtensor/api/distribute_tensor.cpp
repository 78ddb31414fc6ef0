// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/distribute_tensor.h"

#include "daemon/comm/agreement/given_agreement.h"
#include "daemon/dtensor/api/layout_of.h"
#include "daemon/dtensor/boxes.h"
#include "daemon/dtensor/outside_mesh.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

using planner::DTensorSpec;
using planner::LocalPart;
using planner::Placements;
using planner::SpecPtr;

/// Throws InvalidArgument for what does not fit on this rank.
void check_arguments(const Tensor& tensor, const DistributedEngine& engine, const SpecPtr& layout,
                     std::optional<int> src_data_rank) {
  if (tensor.has_layout()) {
    const TensorLayout& has = *tensor.layout();
    check(has.engine == &engine && has.spec == layout,
          "distribute_tensor: the tensor has layout {} on mesh {} already, asked for {} on mesh {}",
          *has.spec, has.spec->mesh(), *layout, layout->mesh());
    return;
  }
  check(tensor.shape() == layout->shape(),
        "distribute_tensor: a tensor of shape {}, a layout of {}", tensor.shape(), layout->shape());
  check(!layout->has_partial(), "distribute_tensor: Partial placements {} hold no tensor's values",
        planner::to_string(layout->placements()));
  check(tensor.is_leaf(), "distribute_tensor: a tensor that was computed (by {}); expected a leaf",
        tensor.grad_fn() ? "an op with a gradient" : "an op");
  if (!src_data_rank) return;
  for (const planner::MeshDim& dim : layout->mesh().dims())
    check(*src_data_rank >= 0 && *src_data_rank < dim.size,
          "distribute_tensor: source rank {} is outside the mesh {}", *src_data_rank,
          layout->mesh());
}

/// The layout with the first `count` shards of `order` done and the rest replicated.
DTensorSpec partly_sharded(const DTensorSpec& layout, const std::vector<int>& order,
                           std::size_t count) {
  Placements placements(layout.placements().size(), planner::Placement::replicate());
  std::vector<planner::DimOrderPtr> dim_orders(layout.has_dim_orders() ? placements.size() : 0);
  planner::ShardOrder shards;
  for (std::size_t i = 0; i < count; ++i) {
    const auto m = static_cast<std::size_t>(order[i]);
    placements[m] = layout.placements()[m];
    if (!placements[m].is_shard()) continue;
    if (!dim_orders.empty()) dim_orders[m] = layout.dim_order(order[i]);
    if (shards.empty() || shards.back().tensor_dim != placements[m].dim)
      shards.push_back({placements[m].dim, {}});
    shards.back().mesh_dims.push_back(order[i]);
  }
  return DTensorSpec(layout.mesh_ptr(), placements, layout.shape(), shards, dim_orders);
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
    parts.push_back(empty(context, part.shape(), value.dtype()));
    copy_boxes(context.kernel_context(), context.backend(), common_boxes(held, part),
               parts.back().view(), value.view());
    views.push_back(parts.back().view());
  }
  Tensor mine = group.rank() == source
                    ? parts[static_cast<std::size_t>(source)]
                    : empty(context, after.local_shape(mesh.coordinates()), value.dtype());
  group.scatter(mine.view(), views, source)->wait_host();
  return mine;
}

Tensor from_source(const Tensor& tensor, const DTensorSpec& layout, int source, DeviceMesh& mesh) {
  // Mesh dims in the order in which they are sharded, then those that replicate.
  std::vector<int> order;
  for (const planner::DimShardOrder& shards : layout.shard_order())
    order.insert(order.end(), shards.mesh_dims.begin(), shards.mesh_dims.end());
  for (int d = 0; d < layout.mesh().ndim(); ++d)
    if (layout.placement(d).is_replicate()) order.push_back(d);
  Tensor value = tensor;
  bool owned = false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (layout.mesh().dim_size(order[i]) == 1) continue;
    if (layout.placement(order[i]).is_shard()) {
      value = scatter_along(value, partly_sharded(layout, order, i),
                            partly_sharded(layout, order, i + 1), order[i], source, mesh);
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

/// This rank's part as a leaf.
Tensor own_part(const Tensor& tensor, const DTensorSpec& layout, std::optional<int> src_data_rank,
                DeviceMesh& mesh) {
  ExecutionContext& context = tensor.context();
  if (!mesh.member()) return outside_local(context, layout.shape(), tensor.dtype());
  if (!src_data_rank) {
    // A copy of the part, out of this rank's own tensor.
    const LocalPart part = layout.local_part(mesh.coordinates());
    const DTensorSpec whole = partly_sharded(layout, {}, 0);
    Tensor mine = empty(context, part.shape(), tensor.dtype());
    copy_boxes(context.kernel_context(), context.backend(),
               common_boxes(whole.local_part(mesh.coordinates()), part), mine.view(),
               tensor.view());
    return mine;
  }
  const Tensor part = from_source(tensor.detach(), layout, *src_data_rank, mesh);
  if (part.storage() != tensor.storage()) return ops::contiguous(part);
  // Nothing had to be moved.
  Tensor copy = empty(context, tensor.shape(), tensor.dtype());
  copy_into(copy, tensor);
  return copy;
}

/// `make_layout` throws InvalidArgument if it does not fit.
template <typename MakeLayout>
Tensor distribute(const Tensor& tensor, DistributedEngine& engine, const MakeLayout& make_layout,
                  std::optional<int> src_data_rank) {
  DeviceMesh& mesh = engine.context().mesh;
  SpecPtr layout;
  const auto prepare = [&] {
    layout = engine.intern(make_layout());
    check_arguments(tensor, engine, layout, src_data_rank);
  };
  if (src_data_rank && mesh.member()) {
    comm::Given given;
    try {
      prepare();
      given.text = fmt::format(
          "{} {} {}{} from {} as {}", dtype_name(tensor.dtype()), to_string(tensor.shape()),
          tensor.requires_grad() ? "with gradient" : "without gradient",
          tensor.has_layout() ? " distributed already" : "", *src_data_rank, to_string(*layout));
    } catch (const InvalidArgument& error) {
      given.error = error.what();
    }
    comm::check_agreement("distribute_tensor", given, mesh.control_group());
  } else {
    prepare();
  }
  if (tensor.has_layout()) return tensor;
  const NoGradGuard no_grad(tensor.context());
  Tensor local = own_part(tensor, *layout, src_data_rank, mesh);
  if (tensor.requires_grad()) local.set_requires_grad(true);
  return wrap(local, layout, engine, tensor.requires_grad() ? engine.gradient_of(layout) : nullptr);
}

}  // namespace

Tensor distribute_tensor(const Tensor& tensor, DistributedEngine& engine, const SpecPtr& layout,
                         std::optional<int> src_data_rank) {
  return distribute(
      tensor, engine, [&] { return layout; }, src_data_rank);
}

Tensor distribute_tensor(const Tensor& tensor, DistributedEngine& engine,
                         const Placements& placements, std::optional<int> src_data_rank) {
  const auto make_layout = [&] {
    return layout_for(engine, placements, tensor.shape(), "distribute_tensor");
  };
  return distribute(tensor, engine, make_layout, src_data_rank);
}

}  // namespace meshloom::dtensor
