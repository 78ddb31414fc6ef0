// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/symm_mem_kind.h"

#include "kernels/base/error.h"
#include "tests/conformance/fused_case.h"
#include "tests/conformance/group_case.h"

namespace meshloom::conformance {
namespace {

std::string op_of(const Case& c) {
  const std::string op = ObjectReader(c.keys, "case").string("op");
  check(is_fused_op(op) || is_group_op(op), "op: unknown op '{}' of kind symm_mem", op);
  check(c.mesh.ndim() == 1, "{}: the mesh has {} dims, expected 1", op, c.mesh.ndim());
  return op;
}

void validate(const Case& c, const TensorFile& file) {
  const std::string op = op_of(c);
  is_fused_op(op) ? validate_fused(op, c, file) : validate_group(op, c, file);
}

void run(const Case& c, const TensorFile& file, RankContext& rank, CaseResults& results) {
  const std::string op = op_of(c);
  is_fused_op(op) ? run_fused(op, c, file, rank, results) : run_group(op, c, file, rank, results);
}

}  // namespace

const Kind& symm_mem_kind() {
  static const Kind kind{"symm_mem", {"op", "attributes", "algorithm"}, validate, run};
  return kind;
}

}  // namespace meshloom::conformance
