// SPDX-License-Identifier: Apache-2.0
// Kind "module": one module of daemon/nn under a plan of parallel styles.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& module_kind();

}  // namespace meshloom::conformance
