// SPDX-License-Identifier: Apache-2.0
// Ops that act on each element by itself, on several ranks: every rank runs them on its part.
#pragma once

#include "tests/conformance/case.h"
#include "tests/conformance/op_table.h"

namespace meshloom::conformance {

/// Runs a one-tensor elementwise op on shards and gathers results. Throws Unimplemented ("... is
/// not built yet") for any other op and for Partial placements.
void run_sharded(const Case& c, const TensorFile& file, RankContext& rank, const std::string& op,
                 const BoundOp& bound, const std::vector<CaseInput>& inputs, CaseResults& results);

}  // namespace meshloom::conformance
