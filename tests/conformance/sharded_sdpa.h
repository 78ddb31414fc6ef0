// SPDX-License-Identifier: Apache-2.0
// Attention with the batch sharded over mesh dim dp and the heads over tp.
#pragma once

#include "daemon/tensor/ops/attention.h"
#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// Runs attention on a mesh of dp and tp, and its backward where the file has a gradient of the
/// output; `options` without bias and documents, which come from the file. Throws
/// Unimplemented for other mesh dims.
void run_sharded_sdpa(const TensorFile&, RankContext&, ops::SdpaOptions options, CaseResults&);

}  // namespace meshloom::conformance
