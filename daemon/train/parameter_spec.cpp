// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/parameter_spec.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::train {

planner::SpecPtr parameter_spec(const planner::MeshPtr& mesh, const Shape& shape,
                                const planner::SpecPtr& tensor_spec, std::optional<int> shard_dim) {
  const auto dims = static_cast<std::size_t>(mesh->ndim());
  planner::Placements placements(dims, planner::Placement::replicate());
  std::vector<planner::DimOrderPtr> orders;
  planner::ShardOrder order;
  const std::optional<int> tp = mesh->find_dim("tp"), fsdp = mesh->find_dim("fsdp");
  if (tensor_spec && tensor_spec->placement(0).is_shard()) {
    check_internal(tp.has_value(), "a parameter is sharded over tp on the mesh {}", *mesh);
    placements[static_cast<std::size_t>(*tp)] = tensor_spec->placement(0);
    if (tensor_spec->has_dim_orders()) {
      orders.resize(dims);
      orders[static_cast<std::size_t>(*tp)] = tensor_spec->dim_order(0);
    }
  }
  if (shard_dim) {
    check_internal(fsdp.has_value(), "a parameter is sharded over fsdp on the mesh {}", *mesh);
    placements[static_cast<std::size_t>(*fsdp)] = planner::Placement::shard(*shard_dim);
    if (tp && placements[static_cast<std::size_t>(*tp)] == planner::Placement::shard(*shard_dim))
      order.push_back({*shard_dim, {*tp, *fsdp}});
  }
  return std::make_shared<const planner::DTensorSpec>(mesh, std::move(placements), shape,
                                                      std::move(order), std::move(orders));
}

bool speaks_for_part(const planner::DTensorSpec& spec, const std::vector<int>& coordinates,
                     const std::vector<int>& among) {
  return std::all_of(among.begin(), among.end(), [&](int dim) {
    return !spec.placement(dim).is_replicate() || coordinates[static_cast<std::size_t>(dim)] == 0;
  });
}

}  // namespace meshloom::train
