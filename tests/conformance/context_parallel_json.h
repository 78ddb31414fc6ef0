// SPDX-License-Identifier: Apache-2.0
// The keys of `context_parallel` in cases.
#pragma once

#include "planner/attention/context_parallel_plan.h"
#include "tests/conformance/object_reader.h"

namespace meshloom::conformance {

/// load_balancer (default none), rotate (default allgather) and ulysses_degree. Throws
/// InvalidArgument naming the key and what is known.
planner::ContextParallelPlan read_context_parallel_plan(ObjectReader& reader);

}  // namespace meshloom::conformance
