// SPDX-License-Identifier: Apache-2.0
// Redistribution from one mesh to another: other dims, other ranks, none in common.
#pragma once

#include "planner/redistribute/planner.h"

namespace meshloom::planner {

/// Plans so: Partials of `from` are reduced on its mesh first, in the cheapest layout to send from;
/// then one step of direct messages; Partials of `to`, P(sum) alone, are made from replicated
/// values on its mesh. Throws InvalidArgument, its text holding "partial", for other Partials in
/// `to`.
PlanPtr plan_across_meshes(const SpecPtr& from, const SpecPtr& to,
                           const RedistributeOptions& options);

}  // namespace meshloom::planner
