// SPDX-License-Identifier: Apache-2.0
// Workload: the work of an optimizer step, and whether a model can do it on a mesh with a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/device.h"
#include "planner/estimate/model_shape.h"
#include "planner/plan/mesh_sizes.h"
#include "planner/plan/parallel_plan.h"

namespace meshloom::planner {

enum class OptimizerState { kAdam, kSgd, kSgdMomentum };

struct Workload {
  std::int64_t global_batch = 1;  ///< samples of a step over all ranks
  std::int64_t micro_batch = 1;   ///< samples a rank computes at once
  std::int64_t sequence = 1;      ///< tokens of a sample
  OptimizerState optimizer = OptimizerState::kAdam;
  /// Batches that are not counted here may have left gradients, as in runs driven step by step.
  bool accumulates = false;
  /// Patterns of parameters that are not trained (covers_pattern).
  std::vector<std::string> frozen = {};
  /// Tensors lie and kernels run on this kind of device; kinds need not have the same memory in
  /// passing.
  DeviceKind device = DeviceKind::kCpu;
};

/// Returns the number of samples of a step on the rank that has most.
std::int64_t samples_per_rank(const MeshSizes& mesh, const Workload& work);
std::int64_t micro_batches(const MeshSizes& mesh, const Workload& work);

/// Returns the number of tokens of a sample on the rank of cp that has most.
std::int64_t tokens_per_rank(const MeshSizes& mesh, const Workload& work);

/// Returns why this choice cannot run, or nothing.
std::optional<std::string> why_invalid(const ModelShape& model, const MeshSizes& mesh,
                                       const ParallelPlan& plan, const Workload& work);

}  // namespace meshloom::planner
