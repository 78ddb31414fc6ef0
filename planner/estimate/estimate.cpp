// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/estimate.h"

#include "kernels/base/error.h"
#include "planner/estimate/rotate_choice.h"

namespace meshloom::planner {

Estimate estimate(const ModelShape& model, const MeshSizes& mesh, const ParallelPlan& given,
                  const Workload& work, const Machine& machine) {
  check_model_shape(model);
  if (const auto reason = why_invalid(model, mesh, given, work))
    throw InvalidArgument("estimate: " + *reason, "INVALID_PLAN");
  const ParallelPlan plan =
      resolve_context_parallel(given, model, mesh, work, machine.topology.ranks_per_host);
  const LocalModel local = local_model(model, mesh, plan, work);
  Estimate result{.mesh = mesh, .plan = plan, .work = work};
  result.parameters = parameter_count(model);
  result.local_parameters = local.all().sharded;
  result.memory = estimate_memory(local);
  result.traffic = step_traffic(local);
  result.time = estimate_step_time(local, result.traffic, share_of_rank(machine, mesh.ranks()));
  return result;
}

}  // namespace meshloom::planner
