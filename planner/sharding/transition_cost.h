// SPDX-License-Identifier: Apache-2.0
// What it costs to bring an input into the layout of a strategy, estimated placement by placement:
// quick enough to rank every strategy. The planner's own figures decide between those that come
// close.
#pragma once

#include "planner/redistribute/planner.h"

namespace meshloom::planner {

/// MeshLink is one mesh dim, as messages along it see it.
struct MeshLink {
  int size = 1;
  Link link;
};
MeshLink mesh_link(const MeshLayout& mesh, int mesh_dim, const Topology& topology);

/// Returns the estimated cost of changing the placement of one mesh dim of a tensor of which a rank
/// holds `bytes` in layout `from`. Zero if no message is needed; infinity if it is not legal.
double transition_cost(const Placement& from, const Placement& to, double bytes,
                       const MeshLink& link, CostModel model);
/// Estimates the cost of changing the shards of a tensor for those of another sharding of the same
/// dim.
double reshard_cost(double bytes, const MeshLink& link, CostModel model);

}  // namespace meshloom::planner
