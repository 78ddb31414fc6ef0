// SPDX-License-Identifier: Apache-2.0
// How the parameters of a model lie on a mesh: placements and what a rank holds.
#pragma once

#include <string>
#include <vector>

#include "planner/estimate/plan_choice.h"
#include "planner/placement.h"

namespace meshloom::planner {

struct ParameterLayout {
  std::string name;  ///< of layers "PREFIX.*.NAME": all are alike
  int count = 1;     ///< layers that have it
  Shape shape;
  Placements placements{};     ///< over dp, fsdp, cp and tp
  TensorSharding sharding;     ///< units of tp's sharding
  Shape local;                 ///< what the rank holds between steps
  std::string shard_reason{};  ///< why fsdp shards it so, or not (ShardChoice); "" without fsdp
};

/// On the rank at these coordinates of dp, fsdp, cp, tp. Where fsdp and tp shard one dim, tp shards
/// first.
std::vector<ParameterLayout> parameter_layouts(const ModelShape& model, const MeshSizes& mesh,
                                               const PlanChoice& plan,
                                               const std::vector<int>& coordinates);

}  // namespace meshloom::planner
