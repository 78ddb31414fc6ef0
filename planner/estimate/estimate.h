// SPDX-License-Identifier: Apache-2.0
// Estimate: memory, traffic and time of a model on a mesh with a plan.
#pragma once

#include <vector>

#include "planner/estimate/memory.h"
#include "planner/estimate/step_time.h"

namespace meshloom::planner {

struct Estimate {
  MeshSizes mesh;
  ParallelPlan plan;  ///< with the way in which keys travel that auto stands for
  Workload work;
  std::int64_t parameters = 0;        ///< of the model
  std::int64_t local_parameters = 0;  ///< elements of them that stay on the fullest rank
  MemoryEstimate memory{};
  std::vector<Traffic> traffic{};
  StepTime time{};
};

/// `machine` describes a rank or, if shared_by_ranks, a host. Throws InvalidArgument with the
/// reason if the choice cannot run.
Estimate estimate(ModelGraphs& model, const MeshSizes& mesh, const ParallelPlan& plan,
                  const Workload& work, const Machine& machine);

}  // namespace meshloom::planner
