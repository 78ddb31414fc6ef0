// SPDX-License-Identifier: Apache-2.0
// Cases of kind symm_mem with matrices: the fused products and their scaled variants.
#pragma once

#include <string>

#include "tests/conformance/case.h"

namespace meshloom::conformance {

bool is_fused_op(const std::string& op);
void validate_fused(const std::string& op, const Case&, const TensorFile&);
void run_fused(const std::string& op, const Case&, const TensorFile&, RankContext&, CaseResults&);

}  // namespace meshloom::conformance
