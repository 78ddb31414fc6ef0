// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/context_parallel_json.h"

#include "kernels/base/error.h"

namespace meshloom::conformance {

planner::ContextParallelPlan read_context_parallel_plan(ObjectReader& reader) {
  planner::ContextParallelPlan plan;
  const std::string balancer = reader.string_or("load_balancer", "none");
  const auto known_balancer = planner::find_load_balancer(balancer);
  check(known_balancer.has_value(), "context_parallel: load_balancer is '{}', expected {}",
        balancer, planner::kLoadBalancerNames);
  plan.load_balancer = *known_balancer;
  const std::string rotate = reader.string_or("rotate", "allgather");
  const auto known_rotate = planner::find_rotate(rotate);
  check(known_rotate.has_value(), "context_parallel: rotate is '{}', expected {}", rotate,
        planner::kRotateNames);
  plan.rotate = *known_rotate;
  if (!reader.has("ulysses_degree")) return plan;
  const std::int64_t degree = reader.integer("ulysses_degree");
  check(rotate == "ulysses", "context_parallel: ulysses_degree is {}, but rotate is {}", degree,
        rotate);
  check(degree >= 1, "context_parallel: ulysses_degree is {}, expected 1 or more", degree);
  plan.ulysses_degree = static_cast<int>(degree);
  return plan;
}

}  // namespace meshloom::conformance
