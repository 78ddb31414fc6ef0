// SPDX-License-Identifier: Apache-2.0
// What is estimated: a mesh, a plan and the work of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/base/dtype.h"
#include "planner/estimate/model_shape.h"
#include "planner/estimate/tensor_groups.h"
#include "planner/mesh_layout.h"
#include "planner/parameter_shards.h"

namespace meshloom::planner {

/// Sizes of the mesh dims, outermost first: tp neighbours are neighbours in rank.
struct MeshSizes {
  int dp = 1;
  int fsdp = 1;
  int cp = 1;
  int tp = 1;

  std::int64_t ranks() const { return std::int64_t{dp} * fsdp * cp * tp; }
  bool operator==(const MeshSizes&) const = default;
};

/// "dp=2,tp=2"; dims of size 1 are left out, "1 rank" where all are.
std::string to_string(const MeshSizes& mesh);
/// All four dims by name.
MeshLayout mesh_layout(const MeshSizes& mesh);

enum class Checkpointing { kNone, kSelective, kFull };
enum class OptimizerState { kAdam, kSgd, kSgdMomentum };

struct PlanChoice {
  bool tensor_parallel = false;
  TensorGroups tensor_groups = {};  ///< tensor_parallel: which parts are sharded
  bool sequence_parallel = false;
  bool fully_shard = false;
  bool reshard_after_forward = true;  ///< fully_shard: gather parameters again for backward
  ShardOptions shards = {};           ///< fully_shard: which dims are sharded
  Checkpointing checkpointing = Checkpointing::kNone;
  DType dtype = DType::kFloat32;  ///< of weights and activations; float32 or bfloat16
  OptimizerState optimizer = OptimizerState::kAdam;

  bool operator==(const PlanChoice&) const = default;
};

/// "tensor_parallel, sequence_parallel, activation_checkpoint full, bfloat16"
std::string to_string(const PlanChoice& plan);

/// The work of an optimizer step.
struct Workload {
  std::int64_t global_batch = 1;  ///< samples of a step over all ranks
  std::int64_t micro_batch = 1;   ///< samples a rank computes at once
  std::int64_t sequence = 1;      ///< tokens of a sample
};

/// Samples of a step on the rank that has most.
std::int64_t samples_per_rank(const MeshSizes& mesh, const Workload& work);
std::int64_t micro_batches(const MeshSizes& mesh, const Workload& work);

/// Why this choice cannot run, or nothing.
std::optional<std::string> why_invalid(const ModelShape& model, const MeshSizes& mesh,
                                       const PlanChoice& plan, const Workload& work);

}  // namespace meshloom::planner
