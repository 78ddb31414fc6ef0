// SPDX-License-Identifier: Apache-2.0
// All kinds of cases.
#pragma once

#include <span>

#include "tests/conformance/case.h"

namespace meshloom::conformance {

std::span<const Kind> all_kinds();

}  // namespace meshloom::conformance
