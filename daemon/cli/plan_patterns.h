// SPDX-License-Identifier: Apache-2.0
// What the patterns of a plan file mean for a model: dims of fully_shard, styles of tensor
// parallelism.
#pragma once

#include "planner/estimate/plan_choice.h"
#include "v1/config.pb.h"

namespace meshloom::cli {

/// Throws CliError (kUsage) naming the field for a pattern that matches nothing and for two that
/// match equally well.
planner::ShardOptions make_shard_options(const v1::FullyShardOptions& given,
                                         const planner::ModelShape& model);

/// Without styles: all parts. Throws CliError (kUsage) for styles that are not estimated.
planner::TensorGroups make_tensor_groups(const v1::ParallelPlan& plan,
                                         const planner::ModelShape& model);

}  // namespace meshloom::cli
