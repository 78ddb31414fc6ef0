// SPDX-License-Identifier: Apache-2.0
// Kind `sdpa`: attention, local and on one rank so far.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& sdpa_kind();

}  // namespace meshloom::conformance
