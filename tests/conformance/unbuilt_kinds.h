// SPDX-License-Identifier: Apache-2.0
// Kinds whose cases are read and checked, and then refused: what they test does not exist so far.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& symm_mem_kind();

}  // namespace meshloom::conformance
