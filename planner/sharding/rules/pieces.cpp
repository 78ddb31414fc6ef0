// SPDX-License-Identifier: Apache-2.0
// Slice, split and cat. Along the dim itself a sharding passes if every rank takes the same
// share of every piece: the whole dim, or equal pieces of a dim that is sharded stretch by stretch
// (a fused QKV projection sharded by heads).
#include <algorithm>

#include "kernels/base/integer_math.h"
#include "planner/sharding/rules/rules.h"

namespace meshloom::planner::rules {
namespace {

void add_other_dims(OpRule& rule, const OpCall& call, const Shape& shape, int dim) {
  for (int d = 0; d < shape.size(); ++d) {
    if (d == dim) continue;
    ShardAxis& axis = add_axis(rule, shape[d], {}, {});
    axis.inputs.assign(call.inputs.size(), AxisUse{d});
    axis.outputs.assign(rule.outputs.size(), AxisUse{d});
  }
}

OpRule slice(const OpCall& call) {
  const Shape& x = shape_of(call, 0);
  const auto& [dim_given, start, end, step] = call.attributes.ints;
  const int dim = dim_attribute(call, dim_given, x.size());
  require(call, start >= 0 && start <= end && end <= x[dim] && step >= 1,
          "bounds {}:{}:{} of a dim of {}", start, end, step, x[dim]);
  Shape out = x;
  out[dim] = divide_up(end - start, step);
  OpRule rule;
  rule.outputs.push_back(out);
  add_other_dims(rule, call, x, dim);
  const std::int64_t count = out[dim];
  if (count > 0 && x[dim] % count == 0 && start % count == 0 && step == 1 &&
      (count > 1 || x[dim] == 1)) {
    ShardAxis& axis = add_axis(rule, x[dim], {dim}, {});
    axis.outputs = {{dim, x[dim] / count, 1}};
  }
  return rule;
}

OpRule split(const OpCall& call) {
  const Shape& x = shape_of(call, 0);
  const std::int64_t size = call.attributes.ints[0];
  const int dim = dim_attribute(call, call.attributes.ints[1], x.size());
  require(call, size > 0, "split_size is {}, expected at least 1", size);
  OpRule rule;
  for (std::int64_t start = 0; start < std::max<std::int64_t>(x[dim], 1); start += size) {
    Shape piece = x;
    piece[dim] = std::min(size, x[dim] - start);
    rule.outputs.push_back(piece);
  }
  add_other_dims(rule, call, x, dim);
  const auto count = static_cast<std::int64_t>(rule.outputs.size());
  if (x[dim] == 0 || (count > 1 && x[dim] % size != 0)) return rule;
  ShardAxis& axis = add_axis(rule, x[dim], {dim}, {});
  axis.outputs.assign(rule.outputs.size(), AxisUse{dim, count, 1});
  return rule;
}

OpRule cat(const OpCall& call) {
  Shape out = shape_of(call, 0);
  const int dim = dim_attribute(call, call.attributes.ints[0], out.size());
  const std::int64_t piece = out[dim];
  bool equal = true;
  for (std::size_t i = 1; i < call.inputs.size(); ++i) {
    const Shape& next = shape_of(call, static_cast<int>(i));
    Shape expected = out;
    if (next.size() == out.size()) expected[dim] = next[dim];
    require(call, next == expected, "the shapes differ in more than dim {}", dim);
    equal = equal && next[dim] == piece;
    out[dim] += next[dim];
  }
  OpRule rule;
  rule.outputs.push_back(out);
  add_other_dims(rule, call, out, dim);
  const auto count = static_cast<std::int64_t>(call.inputs.size());
  if (equal && piece > 0) {
    ShardAxis& axis = add_axis(rule, out[dim], {}, {dim});
    axis.inputs.assign(call.inputs.size(), AxisUse{dim, count, 1});
  }
  return rule;
}

}  // namespace

OpRule pieces(const OpCall& call) {
  OpRule rule = call.op == OpId::kSlice   ? slice(call)
                : call.op == OpId::kSplit ? split(call)
                                          : cat(call);
  pass_partial(rule, call, kAllOps);
  return rule;
}

}  // namespace meshloom::planner::rules
