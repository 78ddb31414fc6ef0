// SPDX-License-Identifier: Apache-2.0
// How the parameters of a model lie on a mesh: placements and what a rank holds.
#pragma once

#include <string>
#include <vector>

#include "planner/estimate/model_graphs.h"
#include "planner/placement.h"
#include "planner/plan/mesh_sizes.h"
#include "planner/plan/parallel_plan.h"

namespace meshloom::planner {

struct ParameterLayout {
  std::string name;  ///< of layers "PREFIX.*.NAME": all are alike
  int count = 1;     ///< layers that have it
  Shape shape;
  /// Over dp, fsdp, cp and tp. What fsdp shards, cp shards too: both count as one dim.
  Placements placements{};
  int groups = 1;              ///< of tp's sharding: stretches,
  std::int64_t unit = 1;       ///< and how many features stay together in each
  Shape local;                 ///< what the rank holds between steps
  std::string shard_reason{};  ///< why fsdp shards it so, or not (ShardChoice); "" without fsdp
};

/// Returns the layouts on the rank at these coordinates of dp, fsdp, cp, tp. If fsdp and tp shard
/// one dim, tp shards first.
std::vector<ParameterLayout> parameter_layouts(const ModelGraphs& model, const MeshSizes& mesh,
                                               const ParallelPlan& plan,
                                               const std::vector<int>& coordinates);

}  // namespace meshloom::planner
