// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/unbuilt_kinds.h"

#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

void run_unbuilt(const Case& c, const TensorFile&, RankContext&, CaseResults&) {
  throw Unimplemented(fmt::format("kind {} is not built yet", c.kind));
}

void validate_symm_mem(const Case& c, const TensorFile&) {
  ObjectReader(c.keys, "case").string("op");
}

}  // namespace

const Kind& symm_mem_kind() {
  static const Kind kind{
      "symm_mem", {"op", "attributes", "algorithm"}, validate_symm_mem, run_unbuilt};
  return kind;
}

}  // namespace meshloom::conformance
