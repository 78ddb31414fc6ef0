// SPDX-License-Identifier: Apache-2.0
// Collectives of a group by themselves, and the fused and low-contention ones in symmetric memory.
#pragma once

#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& symm_mem_kind();

}  // namespace meshloom::conformance
