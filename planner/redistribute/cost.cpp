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
/// ascending order of mesh rank, which ends the count at the first one of another host where ranks
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
  links_.resize(std::size_t{1} << space.dims());
  for (unsigned mask = 1; mask < links_.size(); ++mask) {
    GroupLinks& group = links_[mask];
    for (int m = 0; m < space.dims(); ++m)
      if ((mask >> m & 1U) != 0) group.ranks *= space.size(m);
    const double near = count_near(space, mask, topology_.ranks_per_host);
    group.near = near - 1.0;
    group.far = group.ranks - near;
  }
  const Link &a = topology_.intra_host, &b = topology_.inter_host;
  least_latency_ = std::min(a.latency_seconds, b.latency_seconds);
  least_element_seconds_ = element_size_ / std::max(a.bytes_per_second, b.bytes_per_second);
}

double StepCost::exchange_seconds(const GroupLinks& group, double bytes, double rounds) const {
  const double peers = group.ranks - 1.0;
  const Link& slowest = group.far > 0.0 ? topology_.inter_host : topology_.intra_host;
  const double per_peer = bytes / peers;
  return slowest.latency_seconds + rounds * peers * topology_.hop_seconds +
         per_peer * group.near / topology_.intra_host.bytes_per_second +
         per_peer * group.far / topology_.inter_host.bytes_per_second;
}

bool StepCost::outermost(const LayoutState& state, int tensor_dim) const {
  for (int d = 0; d < tensor_dim; ++d)
    if (space_.local_size(state, d) > 1) return false;
  return true;
}

StepCost::Volume StepCost::volume(const LayoutState& state, double elements,
                                  const Move& move) const {
  const double ranks = links_[move.dims.mask()].ranks;
  const double result = space_.local_elements(move.next);
  const auto first = static_cast<std::size_t>(move.dims[0]);
  switch (move.kind) {
    case StepKind::kAllReduce: {
      const double part = std::ceil(elements / ranks);
      return {2.0 * (ranks - 1.0) * part, ranks * part};
    }
    case StepKind::kReduceScatter: {
      const bool in_place = outermost(state, shard_dim_of(move.next.hold[first]));
      return {(ranks - 1.0) * result, ranks * result + (in_place ? 0.0 : elements)};
    }
    case StepKind::kAllGather: {
      const bool in_place = outermost(move.next, shard_dim_of(state.hold[first]));
      return {(ranks - 1.0) * elements, in_place ? 0.0 : result};
    }
    case StepKind::kAllToAll:
      return {std::max(elements, result) * (ranks - 1.0) / ranks, elements + result};
    case StepKind::kSlice: return {0.0, result};
    case StepKind::kToPartial:
    case StepKind::kConvertPartial: return {0.0, result};
    case StepKind::kSendRecv: break;
  }
  return {};
}

double StepCost::seconds(const LayoutState& state, double elements, const Move& move) const {
  const Volume moved = volume(state, elements, move);
  const double copies = copy_seconds(moved.copied * element_size_);
  if (is_local(move.kind)) return kCallSeconds + copies;
  const double rounds = move.kind == StepKind::kAllReduce ? 2.0 : 1.0;
  return exchange_seconds(links_[move.dims.mask()], moved.sent * element_size_, rounds) + copies;
}

std::int64_t StepCost::bytes(const LayoutState& state, double elements, const Move& move) const {
  return static_cast<std::int64_t>(
      std::ceil(volume(state, elements, move).sent * element_size_ - 1e-6));
}

}  // namespace meshloom::planner
