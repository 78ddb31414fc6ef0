// SPDX-License-Identifier: Apache-2.0
#include "planner/redistribute/plan.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::planner {

const char* step_name(StepKind kind) {
  switch (kind) {
    case StepKind::kAllReduce: return "all_reduce";
    case StepKind::kReduceScatter: return "reduce_scatter";
    case StepKind::kAllGather: return "all_gather";
    case StepKind::kAllToAll: return "all_to_all";
    case StepKind::kSlice: return "slice";
    case StepKind::kToPartial: return "to_partial";
    case StepKind::kConvertPartial: return "convert_partial";
    case StepKind::kSendRecv: return "send_recv";
  }
  return "?";
}

bool is_local(StepKind kind) {
  return kind == StepKind::kSlice || kind == StepKind::kToPartial ||
         kind == StepKind::kConvertPartial;
}

std::string RedistributeStep::to_string() const {
  std::string text = step_name(kind);
  if (!mesh_dims.empty()) text += fmt::format(" over {}", fmt::join(mesh_dims, ", "));
  text += fmt::format(": {} -> {}", planner::to_string(*from), planner::to_string(*to));
  if (!is_local(kind)) text += fmt::format(" ({} bytes)", bytes);
  return text;
}

int RedistributePlan::comm_count() const {
  return static_cast<int>(
      std::count_if(steps.begin(), steps.end(),
                    [](const RedistributeStep& step) { return !is_local(step.kind); }));
}

std::string RedistributePlan::to_string() const {
  std::string text;
  for (const RedistributeStep& step : steps) text += step.to_string() + "\n";
  return text;
}

}  // namespace meshloom::planner
