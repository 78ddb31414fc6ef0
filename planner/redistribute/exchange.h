// SPDX-License-Identifier: Apache-2.0
// Who has which elements for whom in a step of a plan. What ranks send, receive and copy is decided
// here alone: daemon/dtensor lays it out in memory, tests/support/simulate_plan.h proves it.
#pragma once

#include <vector>

#include "planner/local_part.h"
#include "planner/redistribute/plan.h"

namespace meshloom::planner {

/// StepMembers lists the ranks that do a step together: member i is mesh rank from[i] before the
/// step and to[i] after it, -1 if it is outside that mesh (it then holds a local tensor of shape
/// [0]).
struct StepMembers {
  std::vector<int> from, to;

  int size() const { return static_cast<int>(from.size()); }
};

/// Returns the group of a step inside a mesh that `mesh_rank` is in, numbered as the step's mesh
/// dims are flattened.
StepMembers group_members(const RedistributeStep& step, int mesh_rank);
/// Returns the members of a step between meshes: all ranks of either, by ascending rank of the
/// world.
StepMembers crossing_members(const RedistributeStep& step);

/// RankExchange is one member's share. Boxes lead from a local tensor before the step to one after
/// it. Two members list the boxes between them alike, in the same order.
struct RankExchange {
  std::vector<Shape> before, after;  ///< of every member's local tensor
  /// The boxes are by member.
  ///   kAllGather      receives: all of a member's tensor, this one's own included
  ///   kReduceScatter  sends: what a member gets of the sum, this one's own included
  ///   kAllToAll, kSendRecv  both; empty for this member itself
  std::vector<Boxes> sends, receives;
  /// These boxes stay on this rank: kAllToAll, kSendRecv, kSlice, and kToPartial of a shard.
  Boxes kept;
};

/// Returns the share of member number `own`. Of several members that hold the same elements, a
/// receiver that is one of them takes its own, else that of number (receiver mod their number), in
/// order of members. Throws InternalError if the members do not hold all of the step's result, and
/// for a Partial layout in kAllToAll or kSendRecv: no planner makes such a step.
RankExchange rank_exchange(const RedistributeStep& step, const StepMembers& members, int own);
/// Returns the share of rank `mesh_rank` in a step inside a mesh.
RankExchange rank_exchange(const RedistributeStep& step, int mesh_rank);

}  // namespace meshloom::planner
