// SPDX-License-Identifier: Apache-2.0
// Kind `op`: one tensor op; on one rank as a plain op, on several in the layouts of the case.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& op_kind();

}  // namespace meshloom::conformance
