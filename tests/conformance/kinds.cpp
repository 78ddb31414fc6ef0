// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/kinds.h"

#include "tests/conformance/model_kind.h"
#include "tests/conformance/module_kind.h"
#include "tests/conformance/op_kind.h"
#include "tests/conformance/plan_kind.h"
#include "tests/conformance/redistribute_kind.h"
#include "tests/conformance/sdpa_kind.h"
#include "tests/conformance/symm_mem_kind.h"

namespace meshloom::conformance {

std::span<const Kind> all_kinds() {
  static const std::vector<Kind> kinds = {plan_kind(), redistribute_kind(), op_kind(),
                                          sdpa_kind(), symm_mem_kind(),     module_kind(),
                                          model_kind()};
  return kinds;
}

}  // namespace meshloom::conformance
