// SPDX-License-Identifier: Apache-2.0
// The keys "plan" and "optimizer" of a model case.
#pragma once

#include <optional>

#include "daemon/train/optim/optimizer.h"
#include "planner/plan/parallel_plan.h"
#include "tests/conformance/case.h"

namespace meshloom::conformance {

struct OptimizerPlan {
  train::OptimizerSettings settings;
  double lr = 0.0;
  double max_norm = 0.0;  ///< 0: not clipped
  std::int64_t steps = 1;
};

/// These throw InvalidArgument naming the key.
/// `fusion` is of plans with sequence parallelism.
planner::ParallelPlan read_model_plan(const Case&,
                                      planner::FusionMode fusion = planner::FusionMode::kAuto);
std::optional<OptimizerPlan> read_optimizer_plan(const Case&);

}  // namespace meshloom::conformance
