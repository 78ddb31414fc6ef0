// SPDX-License-Identifier: Apache-2.0
// Attention with the batch cut over mesh dim dp and the heads over tp.
#pragma once

#include "daemon/tensor/ops/attention.h"
#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// Runs a case of kind sdpa on a mesh of dp and tp; `options` without bias and documents. Throws
/// Unimplemented for other mesh dims.
void run_sharded_sdpa(const Case&, const TensorFile&, RankContext&, ops::SdpaOptions options,
                      CaseResults&);

}  // namespace meshloom::conformance
