// SPDX-License-Identifier: Apache-2.0
// ContextParallelPlan: how sequences lie on the ranks of the mesh dim cp, and how attention reads
// them.
#pragma once

#include "planner/attention/balance.h"
#include "planner/attention/rotate.h"

namespace meshloom::planner {

/// ContextParallelPlan is a plain value, like the plan that it is part of; idle if cp has one rank.
struct ContextParallelPlan {
  LoadBalancer load_balancer = LoadBalancer::kAuto;
  Rotate rotate = Rotate::kAuto;
  /// With kUlysses so many neighbouring ranks exchange heads; the number divides the ranks of the
  /// sequence. Between neighbourhoods keys travel as with kPull. 0: all ranks.
  int ulysses_degree = 0;

  bool operator==(const ContextParallelPlan&) const = default;
};

}  // namespace meshloom::planner
