// SPDX-License-Identifier: Apache-2.0
// Kind "redistribute": a tensor from one layout to another and its gradient back.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& redistribute_kind();

}  // namespace meshloom::conformance
