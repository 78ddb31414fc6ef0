// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/estimate.h"

#include "kernels/base/error.h"
#include "planner/estimate/rotate_choice.h"

namespace meshloom::planner {

Estimate estimate(ModelGraphs& model, const MeshSizes& mesh, const ParallelPlan& given,
                  const Workload& work, const Machine& machine) {
  if (const auto reason = why_invalid(model.shape(), mesh, given, work))
    throw InvalidArgument("estimate: " + *reason, "INVALID_PLAN");
  const ParallelPlan plan =
      resolve_context_parallel(given, model.shape(), mesh, work, machine.topology.ranks_per_host);
  const LocalModel local = local_model(model, mesh, plan, work);
  Estimate result{.mesh = mesh, .plan = plan, .work = work};
  result.parameters = parameter_count(model.modules());
  result.local_parameters = local.all().sharded;
  result.memory = estimate_memory(local);
  result.traffic = step_traffic(local);
  result.time = estimate_step_time(local, result.traffic, share_of_rank(machine, mesh.ranks()));
  return result;
}

}  // namespace meshloom::planner
