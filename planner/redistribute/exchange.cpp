// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/exchange.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

struct PlacedRange {
  ShardRange global;
  std::int64_t local = 0;  ///< where it begins in the local tensor
};

std::vector<PlacedRange> by_global_index(const IndexRanges& ranges) {
  std::vector<PlacedRange> placed;
  placed.reserve(ranges.size());
  std::int64_t at = 0;
  for (const ShardRange& range : ranges) {
    placed.push_back({range, at});
    at += range.size();
  }
  std::sort(placed.begin(), placed.end(), [](const PlacedRange& a, const PlacedRange& b) {
    return a.global.begin < b.global.begin;
  });
  return placed;
}

void append(IndexRanges& in_a, IndexRanges& in_b, ShardRange a, ShardRange b) {
  if (!in_a.empty() && in_a.back().end == a.begin && in_b.back().end == b.begin) {
    in_a.back().end = a.end;
    in_b.back().end = b.end;
  } else {
    in_a.push_back(a);
    in_b.push_back(b);
  }
}

/// Elements in common; both lists are swept in ascending global order.
std::int64_t intersect(const IndexRanges& a, const IndexRanges& b, IndexRanges& in_a,
                       IndexRanges& in_b) {
  const std::vector<PlacedRange> left = by_global_index(a), right = by_global_index(b);
  std::int64_t total = 0;
  for (std::size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    const ShardRange &l = left[i].global, &r = right[j].global;
    const std::int64_t begin = std::max(l.begin, r.begin), end = std::min(l.end, r.end);
    if (begin < end) {
      const std::int64_t at = left[i].local + begin - l.begin,
                         to = right[j].local + begin - r.begin;
      append(in_a, in_b, {at, at + end - begin}, {to, to + end - begin});
      total += end - begin;
    }
    if (l.end < r.end) {
      ++i;
    } else {
      ++j;
    }
  }
  return total;
}

void add_common(const LocalPart& mine, const LocalPart& theirs, int peer,
                std::vector<ExchangePart>& parts) {
  CommonRanges common = common_ranges(mine, theirs);
  if (!common.empty()) parts.push_back({peer, common.shape, std::move(common.in_a)});
}

/// The ranks of the world that hold the same part of `spec` as mesh rank `rank`, ascending.
std::vector<int> holders_like(const DTensorSpec& spec, int rank) {
  std::vector<int> free_dims;
  for (int m = 0; m < spec.mesh().ndim(); ++m)
    if (!spec.placement(m).is_shard()) free_dims.push_back(m);
  std::vector<int> holders = spec.mesh().group_of(std::span<const int>(free_dims), rank);
  for (int& holder : holders) holder = spec.mesh().world_rank(holder);
  std::sort(holders.begin(), holders.end());
  return holders;
}

/// Which of the holders sends to a receiver.
int sender_for(const std::vector<int>& holders, int receiver) {
  if (std::binary_search(holders.begin(), holders.end(), receiver)) return receiver;
  return holders[static_cast<std::size_t>(receiver) % holders.size()];
}

/// True for one rank of those that hold the same.
bool stands_for_copies(const DTensorSpec& spec, const std::vector<int>& coordinates) {
  for (std::size_t m = 0; m < coordinates.size(); ++m)
    if (!spec.placement(static_cast<int>(m)).is_shard() && coordinates[m] != 0) return false;
  return true;
}

void sort_by_peer(std::vector<ExchangePart>& parts) {
  std::sort(parts.begin(), parts.end(),
            [](const ExchangePart& a, const ExchangePart& b) { return a.peer < b.peer; });
}

}  // namespace

CommonRanges common_ranges(const LocalPart& a, const LocalPart& b) {
  CommonRanges common;
  for (std::size_t d = 0; d < a.ranges.size(); ++d) {
    IndexRanges &in_a = common.in_a.emplace_back(), &in_b = common.in_b.emplace_back();
    const std::int64_t size = intersect(a.ranges[d], b.ranges[d], in_a, in_b);
    if (size == 0) return {};
    common.shape.push_back(size);
  }
  return common;
}

RankExchange all_to_all_parts(const RedistributeStep& step, int mesh_rank) {
  const MeshLayout& mesh = step.from->mesh();
  const std::vector<int> group = mesh.group_of(std::span<const int>(step.mesh_dims), mesh_rank);
  const std::vector<int> own = mesh.coordinates(mesh_rank);
  const LocalPart before = step.from->local_part(own), after = step.to->local_part(own);
  RankExchange exchange;
  for (std::size_t peer = 0; peer < group.size(); ++peer) {
    const std::vector<int> at = mesh.coordinates(group[peer]);
    add_common(before, step.to->local_part(at), static_cast<int>(peer), exchange.sends);
    add_common(after, step.from->local_part(at), static_cast<int>(peer), exchange.receives);
  }
  return exchange;
}

RankExchange send_recv_parts(const RedistributeStep& step, int world_rank) {
  const MeshLayout &source = step.from->mesh(), &target = step.to->mesh();
  RankExchange exchange;
  if (const std::optional<int> sender = source.find_world_rank(world_rank)) {
    const LocalPart part = step.from->local_part(source.coordinates(*sender));
    const std::vector<int> holders = holders_like(*step.from, *sender);
    for (int rank = 0; rank < target.size(); ++rank)
      if (sender_for(holders, target.world_rank(rank)) == world_rank)
        add_common(part, step.to->local_part(target.coordinates(rank)), target.world_rank(rank),
                   exchange.sends);
  }
  if (const std::optional<int> receiver = target.find_world_rank(world_rank)) {
    const LocalPart part = step.to->local_part(target.coordinates(*receiver));
    for (int rank = 0; rank < source.size(); ++rank) {
      const std::vector<int> at = source.coordinates(rank);
      if (stands_for_copies(*step.from, at))
        add_common(part, step.from->local_part(at),
                   sender_for(holders_like(*step.from, rank), world_rank), exchange.receives);
    }
  }
  sort_by_peer(exchange.sends);
  sort_by_peer(exchange.receives);
  return exchange;
}

}  // namespace meshloom::planner
