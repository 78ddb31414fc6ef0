// SPDX-License-Identifier: Apache-2.0
// Reductions: a dim that stays is an axis of input and output, a reduced one of the input alone.
#include <algorithm>

#include "planner/sharding/rules/rules.h"

namespace meshloom::planner::rules {
namespace {

bool is_reduced(const Dims& dims, int dim) {
  return dims.empty() || std::find(dims.begin(), dims.end(), dim) != dims.end();
}

/// The maximum's own gradient is local only if no gradient is wanted: a rank cannot know whether
/// its maximum is that of all.
bool may_be_partial_max(const OpCall& call) {
  return call.op == OpId::kAmax && call.attributes.ints[1] != 0;
}

void add_reduced_axis(OpRule& rule, const OpCall& call, int dim, std::int64_t size) {
  const bool adds = call.op == OpId::kSum || call.op == OpId::kMean;
  if (!adds && !may_be_partial_max(call)) return;
  ShardAxis& axis = add_axis(rule, size, {dim}, {-1});
  if (call.op == OpId::kMean) axis.role = MeshRole::kMean;
  if (adds) return;
  axis.reduced = Placement::partial_of(PartialOp::kMax);
  axis.nonempty = true;
}

}  // namespace

OpRule reduction(const OpCall& call) {
  const Shape& x = shape_of(call, 0);
  const Dims& dims = call.attributes.dims;
  const bool keepdim = call.attributes.ints[0] != 0;
  for (const std::int64_t dim : dims) dim_attribute(call, dim, x.size());
  OpRule rule;
  Shape out;
  for (int d = 0; d < x.size(); ++d) {
    if (!is_reduced(dims, d)) {
      add_axis(rule, x[d], {d}, {out.size()});
      out.push_back(x[d]);
      continue;
    }
    add_reduced_axis(rule, call, d, x[d]);
    if (keepdim) out.push_back(1);
  }
  rule.outputs.push_back(out);
  if (call.op == OpId::kSum || call.op == OpId::kMean) pass_partial(rule, call, kLinearOps);
  if (may_be_partial_max(call)) pass_partial(rule, call, {PartialOp::kMax});
  return rule;
}

}  // namespace meshloom::planner::rules
