// SPDX-License-Identifier: Apache-2.0
// From a global tensor to a rank's local tensor in any layout and back, element by element and
// apart from the library's own redistribution, so that they can check it.
#pragma once

#include "planner/dtensor_spec.h"
#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// This rank's local tensor of `global` (contiguous). Partial parts are made by the rule of the
/// case format: shares of it for sum and avg, the value on one rank and less (more) elsewhere for
/// max (min). Throws InvalidArgument for sum or avg of a dtype that is not floating.
Tensor scatter_global(const Tensor& global, const planner::DTensorSpec& spec,
                      const RankContext& rank);

/// The global tensor from everyone's local ones; every rank calls it and gets it. Throws
/// InvalidArgument naming the ranks where replicas differ in a bit.
Tensor gather_global(const Tensor& local, const planner::DTensorSpec& spec,
                     const RankContext& rank);

/// Calls and bytes of `group`'s counters since they were reset, as results want them.
void store_counters(const std::map<std::string, comm::CommCounter>& counters,
                    const std::string& phase, CaseResults& results);

}  // namespace meshloom::conformance
