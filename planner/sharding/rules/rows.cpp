// SPDX-License-Identifier: Apache-2.0
// Ops on whole rows: softmax and the norms. The dims that make a row are no axes.
#include "planner/sharding/rules/rules.h"

namespace meshloom::planner::rules {
namespace {

OpRule softmax(const OpCall& call) {
  const Shape& x = shape_of(call, 0);
  const int row = dim_attribute(call, call.attributes.ints[0], x.size());
  OpRule rule;
  rule.outputs.push_back(x);
  for (int d = 0; d < x.size(); ++d)
    if (d != row) add_axis(rule, x[d], {d}, {d});
  return rule;
}

/// `first`: index of the weight; what lies before are tensors of x's shape.
OpRule norm(const OpCall& call, int first, int row_dims) {
  const Shape& x = shape_of(call, 0);
  require(call, row_dims >= 1 && row_dims <= x.size(), "{} dims to normalise of {}", row_dims,
          x.size());
  for (int i = 1; i < first; ++i)
    require(call, shape_of(call, i) == x, "x and residual differ in shape");
  for (int i = first; i < static_cast<int>(call.inputs.size()); ++i) {
    if (!has_input(call, i)) continue;
    const Shape& weight = shape_of(call, i);
    bool fits = weight.size() == row_dims;
    for (int d = 0; fits && d < row_dims; ++d) fits = weight[d] == x[x.size() - row_dims + d];
    require(call, fits, "weight or bias {} does not fit the last {} dims of {}", to_string(weight),
            row_dims, to_string(x));
  }
  OpRule rule;
  rule.outputs.assign(static_cast<std::size_t>(first), x);
  for (int d = 0; d < x.size() - row_dims; ++d) {
    ShardAxis& axis = add_axis(rule, x[d], {}, {});
    axis.inputs.assign(call.inputs.size(), AxisUse{});
    for (int i = 0; i < first; ++i) axis.inputs[static_cast<std::size_t>(i)].dim = d;
    axis.outputs.assign(rule.outputs.size(), AxisUse{d});
  }
  return rule;
}

}  // namespace

OpRule rows(const OpCall& call) {
  if (call.op == OpId::kNorm) return norm(call, 1, static_cast<int>(call.attributes.ints[0]));
  if (call.op == OpId::kAddNorm) return norm(call, 2, 1);
  return softmax(call);
}

}  // namespace meshloom::planner::rules
