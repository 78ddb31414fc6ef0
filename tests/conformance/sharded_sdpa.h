// SPDX-License-Identifier: Apache-2.0
// Attention with the batch sharded over mesh dim dp, the heads over tp and, with context
// parallelism, the sequence over a mesh dim of its own.
#pragma once

#include <optional>
#include <string>

#include "daemon/tensor/ops/attention.h"
#include "planner/attention/context_parallel_plan.h"
#include "tests/conformance/case.h"

namespace meshloom::conformance {

struct ContextParallelCase {
  std::string mesh_dim;
  planner::ContextParallelPlan plan;
};

/// Runs attention on a mesh, and its backward where the file has a gradient of the output;
/// `options` without bias and documents, which come from the file. Throws Unimplemented for mesh
/// dims that are neither dp nor tp nor the sequence's, InvalidArgument naming a mesh dim that is
/// not there, or a balancer that the case has no use for.
void run_sharded_sdpa(const TensorFile&, RankContext&, ops::SdpaOptions options,
                      const std::optional<ContextParallelCase>&, CaseResults&);

}  // namespace meshloom::conformance
