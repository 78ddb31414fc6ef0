// SPDX-License-Identifier: Apache-2.0
// How long a step takes on a machine.
#pragma once

#include <vector>

#include "planner/estimate/machine.h"
#include "planner/estimate/traffic.h"

namespace meshloom::planner {

/// StepTime counts seconds of one optimizer step on the busiest rank.
struct StepTime {
  double matmul = 0.0;
  double attention = 0.0;
  double memory = 0.0;         ///< norms, activations, residual stream
  double optimizer = 0.0;      ///< gradient norm and update
  double communication = 0.0;  ///< all of it
  double exposed = 0.0;        ///< of it, what computing does not hide
  double total = 0.0;

  double tokens_per_second = 0.0;  ///< of all ranks together
  /// Flops that the model needs over the dense peak of all ranks in that time (mfu).
  double utilization = 0.0;
  /// Mean over largest work of the ranks of cp in attention, a row being one document; 0 if cp has
  /// one rank.
  double attention_balance = 0.0;
};

/// Returns the seconds that the calls of `traffic` take among ranks of the mesh.
double traffic_seconds(const Traffic& traffic, const MeshSizes& mesh, const Topology& topology);

/// `machine` as share_of_rank gives it.
StepTime estimate_step_time(const LocalModel& local, const std::vector<Traffic>& traffic,
                            const Machine& machine);

}  // namespace meshloom::planner
