// SPDX-License-Identifier: Apache-2.0
// Who sends which elements to whom in a step of direct messages (kAllToAll, kSendRecv).
#pragma once

#include <vector>

#include "planner/redistribute/plan.h"

namespace meshloom::planner {

/// A block of elements between two ranks: the outer product of `local`, ranges of the local tensor
/// by dim, row-major in this order. Sender and receiver list the same elements in the same order.
struct ExchangePart {
  int peer = 0;
  Shape shape;
  std::vector<IndexRanges> local;
};

/// By ascending peer; a part that a rank keeps is in both, with itself as the peer. Blocks without
/// elements are left out.
struct RankExchange {
  std::vector<ExchangePart> sends;     ///< ranges of the local tensor before the step
  std::vector<ExchangePart> receives;  ///< and after it
};

/// kAllToAll: `rank` and its peers are indices in the step's group. `mesh_rank` is the rank's place
/// in the mesh. Every element that the group holds before is held once.
RankExchange all_to_all_parts(const RedistributeStep& step, int mesh_rank);

/// kSendRecv: `world_rank` and peers are ranks of the world; a rank outside a mesh neither holds
/// nor needs anything of it. Of n ranks that hold the same, a receiver that is one of them takes
/// its own, else that of number (its world rank mod n), counted by ascending world rank.
RankExchange send_recv_parts(const RedistributeStep& step, int world_rank);

/// What one part has of another: local ranges in `a` and the same elements' in `b`, by ascending
/// global index. Empty where they have nothing in common.
struct CommonRanges {
  std::vector<IndexRanges> in_a, in_b;
  Shape shape;
  bool empty() const { return in_a.empty(); }
};
CommonRanges common_ranges(const LocalPart& a, const LocalPart& b);

}  // namespace meshloom::planner
