// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

// A local step is a call and at most a copy.
constexpr double kCallSeconds = 2e-7;

int next_coordinate(const SearchSpace& space, unsigned mask, std::array<int, kMaxSearchDims>& at) {
  for (int m = space.dims() - 1; m >= 0; --m) {
    if ((mask >> m & 1U) == 0) continue;
    if (++at[static_cast<std::size_t>(m)] < space.size(m)) return m;
    at[static_cast<std::size_t>(m)] = 0;
  }
  return -1;
}

/// How many members of the group of mesh rank 0 along `mask` share its host. Members are counted in
/// ascending order of mesh rank, which ends the count at the first one of another host if ranks
/// are laid out row-major.
double count_near(const SearchSpace& space, unsigned mask, int ranks_per_host) {
  const MeshLayout& mesh = space.mesh();
  const int host = mesh.world_rank(0) / ranks_per_host;
  std::array<int, kMaxSearchDims> at{};
  std::vector<int> coordinates(static_cast<std::size_t>(mesh.ndim()), 0);
  double near = 0.0;
  do {
    for (int m = 0; m < space.dims(); ++m)
      coordinates[static_cast<std::size_t>(space.mesh_dim(m))] = at[static_cast<std::size_t>(m)];
    if (mesh.world_rank(mesh.rank_of(coordinates)) / ranks_per_host == host) {
      near += 1.0;
    } else if (mesh.row_major()) {
      break;
    }
  } while (next_coordinate(space, mask, at) >= 0);
  return near;
}

}  // namespace

double unit_cost(StepKind kind) {
  switch (kind) {
    case StepKind::kAllToAll: return 1.0;
    case StepKind::kAllGather:
    case StepKind::kReduceScatter: return 2.0;
    case StepKind::kAllReduce: return 4.0;
    default: return 0.0;
  }
}

StepCost::StepCost(const SearchSpace& space, const RedistributeOptions& options)
    : space_(space),
      topology_(options.topology ? *options.topology : Topology{}),
      element_size_(options.element_size) {
  check(topology_.ranks_per_host >= 1 && topology_.intra_host.bytes_per_second > 0 &&
            topology_.inter_host.bytes_per_second > 0 && topology_.copy_bytes_per_second > 0,
        "topology: ranks per host and bandwidths must be positive");
  copied_ = element_size_ / topology_.copy_bytes_per_second;
  links_.resize(std::size_t{1} << space.dims());
  rates_.resize(links_.size());
  for (unsigned mask = 1; mask < links_.size(); ++mask) {
    GroupLinks& group = links_[mask];
    for (int m = 0; m < space.dims(); ++m)
      if ((mask >> m & 1U) != 0) group.ranks *= space.size(m);
    const double near = count_near(space, mask, topology_.ranks_per_host);
    group.near = near - 1.0;
    group.far = group.ranks - near;
    const Link &inside = topology_.intra_host, &outside = topology_.inter_host;
    const double peers = group.ranks - 1.0;
    rates_[mask] = {
        group.far > 0.0 ? outside.latency_seconds : inside.latency_seconds,
        peers * topology_.hop_seconds,
        element_size_ / peers *
            (group.near / inside.bytes_per_second + group.far / outside.bytes_per_second)};
  }
}

bool StepCost::outermost(const LayoutState& state, int tensor_dim) const {
  for (int d = 0; d < tensor_dim; ++d)
    if (space_.local_size(state, d) > 1) return false;
  return true;
}

StepCost::Volume StepCost::volume(StepKind kind, double ranks, double elements, double result,
                                  bool in_place) {
  switch (kind) {
    case StepKind::kAllReduce: {
      const double part = std::ceil(elements / ranks);
      return {2.0 * (ranks - 1.0) * part, ranks * part};
    }
    case StepKind::kReduceScatter:
      return {(ranks - 1.0) * result, ranks * result + (in_place ? 0.0 : elements)};
    case StepKind::kAllGather: return {(ranks - 1.0) * elements, in_place ? 0.0 : result};
    case StepKind::kAllToAll:
      return {std::max(elements, result) * (1.0 - 1.0 / ranks), elements + result};
    case StepKind::kSlice:
    case StepKind::kToPartial:
    case StepKind::kConvertPartial: return {0.0, result};
    case StepKind::kSendRecv: break;
  }
  return {};
}

double StepCost::seconds(StepKind kind, unsigned dim_mask, double elements, double result,
                         bool in_place) const {
  const Volume moved = volume(kind, links_[dim_mask].ranks, elements, result, in_place);
  if (is_local(kind)) return kCallSeconds + moved.copied * copied_;
  const Rate& rate = rates_[dim_mask];
  return rate.once + (kind == StepKind::kAllReduce ? 2.0 : 1.0) * rate.round +
         moved.sent * rate.sent + moved.copied * copied_;
}

double StepCost::seconds(StepKind kind, const DimList& dims, const LayoutState& state,
                         double elements, const LayoutState& next, double result) const {
  // Whether the shards of a reduce_scatter or all_gather lie one after the other.
  const auto first = static_cast<std::size_t>(dims[0]);
  bool in_place = true;
  if (kind == StepKind::kReduceScatter) in_place = outermost(state, shard_dim_of(next.hold[first]));
  if (kind == StepKind::kAllGather) in_place = outermost(next, shard_dim_of(state.hold[first]));
  return seconds(kind, dims.mask(), elements, result, in_place);
}

std::int64_t StepCost::bytes(const LayoutState& state, const Move& move) const {
  const double sent = volume(move.kind, links_[move.dims.mask()].ranks,
                             space_.local_elements(state), space_.local_elements(move.next), true)
                          .sent;
  return static_cast<std::int64_t>(std::ceil(sent * element_size_ * (1.0 - 1e-12) - 1e-6));
}

}  // namespace meshloom::planner
