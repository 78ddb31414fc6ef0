// SPDX-License-Identifier: Apache-2.0
// Runs a plan on per-rank index sets, to prove that it does what it says.
#pragma once

#include "planner/redistribute/plan.h"

namespace meshloom::test {

/// Gives every element of the global tensor a number (a Partial holder gets a share of it, of every
/// kind of Partial as if it were a sum), shards it as `plan.from` says, runs every step on every
/// rank as its kind is defined, and compares what each rank holds with `plan.to`. Throws
/// InternalError naming step and rank if anything differs. Work and memory: elements times
/// ranks.
void simulate_plan(const planner::RedistributePlan& plan);

}  // namespace meshloom::test
