// SPDX-License-Identifier: Apache-2.0
// The planner's values as messages, as `meshloom plan` prints them.
#pragma once

#include <cstdint>
#include <string>

#include "planner/estimate/search.h"
#include "v1/plan.pb.h"

namespace meshloom::plan {

v1::Mesh to_message(const planner::MeshSizes& mesh);
v1::ParallelPlan to_message(const planner::ParallelPlan& plan);
v1::MemoryEstimate to_message(const planner::MemoryEstimate& memory);
v1::TrafficEstimate to_message(const planner::Traffic& traffic);
/// `memory_limit` 0: not known.
v1::PlanEstimate to_message(const planner::Estimate& estimate, const std::string& cluster,
                            std::int64_t memory_limit);

}  // namespace meshloom::plan
