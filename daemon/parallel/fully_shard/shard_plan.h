// SPDX-License-Identifier: Apache-2.0
// The decisions of planner/parameter_shards.h, and what else fully_shard is told.
#pragma once

#include "planner/parameter_shards.h"

namespace meshloom::parallel {

using planner::choose_shards;
using planner::ShardCandidate;
using planner::ShardChoice;
using planner::ShardPolicy;
using planner::unit_of;

struct FullyShardOptions : planner::ShardOptions {
  /// If true, a block's parameters are freed between forward and backward and gathered again.
  bool reshard_after_forward = true;
};

}  // namespace meshloom::parallel
