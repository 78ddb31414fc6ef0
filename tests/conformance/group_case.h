// SPDX-License-Identifier: Apache-2.0
// Cases of kind symm_mem in which rank r brings x[r] and gets y[r]: the collectives of a group, and
// low_contention_all_gather and low_contention_reduce_scatter.
#pragma once

#include <string>

#include "tests/conformance/case.h"

namespace meshloom::conformance {

bool is_group_op(const std::string& op);
void validate_group(const std::string& op, const Case&, const TensorFile&);
void run_group(const std::string& op, const Case&, const TensorFile&, RankContext&, CaseResults&);

}  // namespace meshloom::conformance
