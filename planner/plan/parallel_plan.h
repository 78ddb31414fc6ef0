// SPDX-License-Identifier: Apache-2.0
// ParallelPlan: how a model is spread over the ranks of a mesh, and what its blocks keep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"
#include "planner/attention/context_parallel_plan.h"
#include "planner/parameter_shards.h"
#include "planner/plan/activation_checkpoint.h"
#include "planner/plan/fusion.h"
#include "planner/plan/style.h"

namespace meshloom::planner {

/// fully_shard shards this dim of the parameters that a pattern names.
struct DimChoice {
  std::string pattern;
  std::optional<int> dim;  ///< nullopt: whole on every rank

  bool operator==(const DimChoice&) const = default;
};

struct FullyShardPlan {
  ShardPolicy policy = ShardPolicy::kDim0;
  std::int64_t min_elements = ShardOptions{}.min_elements;  ///< of kLargestDivisible
  bool reshard_after_forward = true;  ///< gather parameters again for backward
  std::vector<DimChoice> choices = {};

  bool operator==(const FullyShardPlan&) const = default;
};

/// The blocks that a pattern names ("transformer.h.[0-3]") keep what this mode says.
struct CheckpointChoice {
  std::string pattern;
  ActivationCheckpoint mode = ActivationCheckpoint::kNone;

  bool operator==(const CheckpointChoice&) const = default;
};

/// ParallelPlan is a plain value: what a config says of it is read by daemon/plan, and estimates
/// and runs take it as it is. The mesh is not part of it: a dim of one rank makes its part of the
/// plan idle.
struct ParallelPlan {
  bool tensor_parallel = false;    ///< styles act along the mesh dim tp
  bool sequence_parallel = false;  ///< a choice between default styles; needs tensor_parallel
  StylePlan styles = {};           ///< empty: the model's default styles
  FusionPlan fusion = {};          ///< products of tensor_parallel that take collectives along
  ContextParallelPlan context_parallel = {};  ///< sequences are sharded over the mesh dim cp
  bool fully_shard = false;                   ///< over the mesh dim fsdp
  FullyShardPlan shards = {};
  ActivationCheckpoint checkpointing = ActivationCheckpoint::kNone;  ///< of all blocks, but for
  std::vector<CheckpointChoice> checkpoint_choices = {};             ///< these
  DType dtype = DType::kFloat32;                                     ///< of weights and activations

  bool operator==(const ParallelPlan&) const = default;
};

/// Returns "tensor_parallel, sequence_parallel, activation_checkpoint full, bfloat16"
std::string to_string(const ParallelPlan& plan);

/// Returns the styles of a plan for a model: its own, or the model's default ones. A module keeps
/// the layouts of what it gives unless a style says otherwise, since all parameters of the model
/// have layouts.
StylePlan styles_of(const ParallelPlan& plan, const StylePlan& default_styles);

/// Returns what fully_shard is told of the parameters of these names. Throws InvalidArgument for a
/// pattern that matches nothing, with near misses, and for two that match equally well.
ShardOptions shard_options(const FullyShardPlan& plan, const std::vector<std::string>& parameters);

/// Returns what every block keeps, in the order of the blocks of these parameters. Throws
/// InvalidArgument as shard_options does.
std::vector<ActivationCheckpoint> block_checkpoints(const ParallelPlan& plan,
                                                    const std::vector<std::string>& parameters);

}  // namespace meshloom::planner
