// SPDX-License-Identifier: Apache-2.0
#include "planner/sharding/transition_cost.h"

#include <limits>

namespace meshloom::planner {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Move { kNone, kAllToAll, kAllGather, kReduceScatter, kAllReduce, kIllegal };

Move move_of(const Placement& from, const Placement& to) {
  if (from == to) return Move::kNone;
  if (to.is_partial())
    return from.is_partial() && adds(from.partial) && adds(to.partial) ? Move::kNone
                                                                       : Move::kIllegal;
  if (from.is_replicate()) return Move::kNone;
  if (from.is_partial()) return to.is_shard() ? Move::kReduceScatter : Move::kAllReduce;
  return to.is_shard() ? Move::kAllToAll : Move::kAllGather;
}

double unit_cost(Move move) {
  switch (move) {
    case Move::kNone: return 0;
    case Move::kAllToAll: return 1;
    case Move::kAllGather:
    case Move::kReduceScatter: return 2;
    case Move::kAllReduce: return 4;
    case Move::kIllegal: return kInfinity;
  }
  return kInfinity;
}

/// Bytes that one rank sends, of `bytes` that it holds before.
double bytes_sent(Move move, double bytes, int size) {
  const double others = size - 1, parts = size;
  switch (move) {
    case Move::kAllToAll:
    case Move::kReduceScatter: return bytes * others / parts;
    case Move::kAllGather: return bytes * others;
    case Move::kAllReduce: return 2 * bytes * others / parts;
    default: return 0;
  }
}

double cost_of(Move move, double bytes, const MeshLink& link, CostModel model) {
  if (move == Move::kNone) return 0.0;
  if (move == Move::kIllegal) return kInfinity;
  if (link.size == 1) return 0.0;
  if (model == CostModel::kUnit) return unit_cost(move);
  const double messages = move == Move::kAllReduce ? 2.0 : 1.0;
  return messages * link.link.latency_seconds +
         bytes_sent(move, bytes, link.size) / link.link.bytes_per_second;
}

}  // namespace

MeshLink mesh_link(const MeshLayout& mesh, int mesh_dim, const Topology& topology) {
  std::int64_t span = 1;
  for (int m = mesh_dim; m < mesh.ndim(); ++m) span *= mesh.dim_size(m);
  return {mesh.dim_size(mesh_dim),
          span <= topology.ranks_per_host ? topology.intra_host : topology.inter_host};
}

double transition_cost(const Placement& from, const Placement& to, double bytes,
                       const MeshLink& link, CostModel model) {
  return cost_of(move_of(from, to), bytes, link, model);
}

double reshard_cost(double bytes, const MeshLink& link, CostModel model) {
  return cost_of(Move::kAllToAll, bytes, link, model);
}

}  // namespace meshloom::planner
