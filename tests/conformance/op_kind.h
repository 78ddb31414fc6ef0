// SPDX-License-Identifier: Apache-2.0
// Kind `op`: one tensor op; on several ranks elementwise ops so far.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& op_kind();

}  // namespace meshloom::conformance
