// SPDX-License-Identifier: Apache-2.0
// A tensor op on several ranks: inputs in the layouts of the case, run by the layout engine.
#pragma once

#include "tests/conformance/case.h"
#include "tests/conformance/op_table.h"

namespace meshloom::conformance {

/// Runs the op forward and, where the file has gradients, backward; gathers results, counts
/// collectives. Outputs are named "y", or "y0", "y1", ... where there are `several`.
void run_sharded(const Case& c, const TensorFile& file, RankContext& rank, const BoundOp& bound,
                 const std::vector<CaseInput>& inputs, bool several, CaseResults& results);

}  // namespace meshloom::conformance
