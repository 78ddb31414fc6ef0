// SPDX-License-Identifier: Apache-2.0
// Kind `sdpa`: attention, local or with batch and heads sharded over a mesh.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& sdpa_kind();

}  // namespace meshloom::conformance
