// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/cross_mesh.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"
#include "planner/redistribute/exchange.h"

namespace meshloom::planner {
namespace {

// Up to so many pairs of ranks the bytes of the busiest are counted, beyond they are estimated.
constexpr double kMostCountedPairs = 4096;

/// `spec` with every Partial replaced; in place of P come shards of `tensor_dim`, the innermost
/// ones, or R if it is negative.
SpecPtr without_partial(const SpecPtr& spec, int tensor_dim) {
  if (!spec->has_partial()) return spec;
  Placements placements = spec->placements();
  ShardOrder order = spec->shard_order();
  for (int m = 0; m < spec->mesh().ndim(); ++m) {
    Placement& placement = placements[static_cast<std::size_t>(m)];
    if (!placement.is_partial()) continue;
    placement = tensor_dim < 0 ? Placement::replicate() : Placement::shard(tensor_dim);
    if (tensor_dim < 0) continue;
    const auto entry = std::find_if(order.begin(), order.end(), [&](const DimShardOrder& sharding) {
      return sharding.tensor_dim == tensor_dim;
    });
    if (entry == order.end()) {
      order.push_back({tensor_dim, {m}});
    } else {
      entry->mesh_dims.push_back(m);
    }
  }
  std::vector<DimOrderPtr> dim_orders;
  for (int m = 0; spec->has_dim_orders() && m < spec->mesh().ndim(); ++m)
    dim_orders.push_back(spec->dim_order(m));
  return std::make_shared<const DTensorSpec>(spec->mesh_ptr(), std::move(placements), spec->shape(),
                                             std::move(order), std::move(dim_orders));
}

double shards(const DTensorSpec& spec) {
  double count = 1.0;
  for (int m = 0; m < spec.mesh().ndim(); ++m)
    if (spec.placement(m).is_shard()) count *= spec.mesh().dim_size(m);
  return count;
}

double largest_local(const DTensorSpec& spec) {
  const std::vector<int> first(static_cast<std::size_t>(spec.mesh().ndim()), 0);
  double elements = 1.0;
  for (const std::int64_t size : spec.local_shape(first)) elements *= static_cast<double>(size);
  return elements;
}

/// Elements that the busiest rank sends to others.
double busiest_sender(const RedistributeStep& step) {
  const MeshLayout &source = step.from->mesh(), &target = step.to->mesh();
  if (static_cast<double>(source.size()) * target.size() > kMostCountedPairs)
    return std::max(largest_local(*step.to),
                    largest_local(*step.to) * target.size() / source.size());
  const StepMembers members = crossing_members(step);
  std::int64_t most = 0;
  for (int m = 0; m < members.size(); ++m) {
    if (members.from[static_cast<std::size_t>(m)] < 0) continue;
    std::int64_t sent = 0;
    for (const Boxes& boxes : rank_exchange(step, members, m).sends) sent += count_elements(boxes);
    most = std::max(most, sent);
  }
  return static_cast<double>(most);
}

bool on_one_host(const MeshLayout& a, const MeshLayout& b, int ranks_per_host) {
  const int host = a.world_rank(0) / ranks_per_host;
  for (const MeshLayout* mesh : {&a, &b})
    for (int rank = 0; rank < mesh->size(); ++rank)
      if (mesh->world_rank(rank) / ranks_per_host != host) return false;
  return true;
}

RedistributeStep send_step(const SpecPtr& from, const SpecPtr& to,
                           const RedistributeOptions& options) {
  const Topology topology = options.topology ? *options.topology : Topology{};
  RedistributeStep step;
  step.kind = StepKind::kSendRecv;
  step.from = from;
  step.to = to;
  const double sent = busiest_sender(step) * options.element_size;
  const double received = largest_local(*to) * options.element_size;
  const double ratio = shards(*from) / shards(*to);
  const Link& link = on_one_host(from->mesh(), to->mesh(), topology.ranks_per_host)
                         ? topology.intra_host
                         : topology.inter_host;
  step.bytes = static_cast<std::int64_t>(sent);
  step.cost = link.latency_seconds + std::max(ratio, 1.0 / ratio) * topology.hop_seconds +
              std::max(sent, received) / link.bytes_per_second +
              2.0 * received / topology.copy_bytes_per_second;
  return step;
}

}  // namespace

PlanPtr plan_across_meshes(const SpecPtr& from, const SpecPtr& to,
                           const RedistributeOptions& options) {
  for (const Placement& placement : to->placements())
    check(!placement.is_partial() || placement.partial == PartialOp::kSum,
          "redistribute: between meshes nothing changes into the Partial {}, P(sum) alone",
          to_string(placement));
  const SpecPtr target = without_partial(to, -1);
  std::shared_ptr<RedistributePlan> best;
  const int tensor_dims = from->has_partial() ? from->shape().size() : 0;
  for (int d = -1; d < tensor_dims; ++d) {
    // The way to `between` on the mesh of `from`, then the messages to `target`.
    const SpecPtr between = without_partial(from, d);
    auto plan = std::make_shared<RedistributePlan>();
    plan->from = from;
    if (between != from) *plan = *plan_redistribute(from, between, options);
    // Without steps the two differ in names of mesh dims of size 1 alone.
    plan->steps.push_back(send_step(plan->steps.empty() ? from : between, target, options));
    plan->cost += plan->steps.back().cost;
    if (!best || plan->cost < best->cost) best = std::move(plan);
  }
  if (target != to) {
    const PlanPtr last = plan_redistribute(target, to, options);
    best->steps.insert(best->steps.end(), last->steps.begin(), last->steps.end());
    best->cost += last->cost;
    best->steps.back().to = to;
  }
  best->to = to;
  return best;
}

}  // namespace meshloom::planner
