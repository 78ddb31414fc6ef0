// SPDX-License-Identifier: Apache-2.0
// Matrix products. Axes: the batch dims, rows (M), columns (N) and the contraction (K), which
// leaves the product Partial(sum). A product is linear in each factor, so one Partial factor passes
// while the other is R.
#include <algorithm>

#include "planner/sharding/rules/rules.h"

namespace meshloom::planner::rules {
namespace {

/// Where an operand has the dims of a broadcast batch; -1: it is broadcast there.
int batch_dim(const Shape& shape, int matrix_dims, const Shape& batch, int d) {
  const int own = std::max(0, shape.size() - matrix_dims);
  const int at = d - (batch.size() - own);
  return at >= 0 && shape[at] == batch[d] ? at : -1;
}

Shape batch_of(const Shape& shape, int matrix_dims) {
  Shape batch;
  for (int d = 0; d < shape.size() - matrix_dims; ++d) batch.push_back(shape[d]);
  return batch;
}

OpRule matmul(const OpCall& call) {
  const Shape &a = shape_of(call, 0), &b = shape_of(call, 1);
  const int a_dims = a.size() == 1 ? 1 : 2, b_dims = b.size() == 1 ? 1 : 2;
  if (call.op == OpId::kBmm)
    require(call, a.size() == 3 && b.size() == 3 && a[0] == b[0], "expected [B,M,K] and [B,K,N]");
  require(call, a.size() >= 1 && b.size() >= 1 && a.back() == b[b.size() - b_dims],
          "the shapes {} and {} do not multiply", to_string(a), to_string(b));
  const Shape a_batch = batch_of(a, a_dims), b_batch = batch_of(b, b_dims);
  OpRule rule;
  Shape out = broadcast_shapes(a_batch, b_batch, op_name(call.op));
  const Shape batch = out;
  for (int d = 0; d < batch.size(); ++d)
    add_axis(rule, batch[d], {batch_dim(a, a_dims, batch, d), batch_dim(b, b_dims, batch, d)}, {d});
  if (a_dims == 2) {
    add_axis(rule, a[a.size() - 2], {a.size() - 2, -1}, {out.size()});
    out.push_back(a[a.size() - 2]);
  }
  if (b_dims == 2) {
    add_axis(rule, b.back(), {-1, b.size() - 1}, {out.size()});
    out.push_back(b.back());
  }
  add_axis(rule, a.back(), {a.size() - 1, b.size() - b_dims}, {-1});
  rule.outputs.push_back(out);
  add_partial(rule, call, {0}, PartialOp::kSum);
  add_partial(rule, call, {1}, PartialOp::kSum);
  return rule;
}

/// Products whose result gets a bias: if the result is Partial the bias is Partial too, or R and
/// added by one rank.
void add_biased_partials(OpRule& rule, const OpCall& call, int a, int b, int bias) {
  for (const int factor : {a, b}) {
    if (has_input(call, bias)) {
      add_partial(rule, call, {factor, bias}, PartialOp::kSum);
      add_partial(rule, call, {factor}, PartialOp::kSum).role = MeshRole::kBias;
    } else {
      add_partial(rule, call, {factor}, PartialOp::kSum);
    }
  }
}

OpRule addmm(const OpCall& call) {
  const Shape &input = shape_of(call, 0), &a = shape_of(call, 1), &b = shape_of(call, 2);
  require(call, a.size() == 2 && b.size() == 2 && a[1] == b[0],
          "the shapes {} and {} do not multiply", to_string(a), to_string(b));
  const Shape out{a[0], b[1]};
  require(call, input.size() <= 2 && broadcast_shapes(input, out, op_name(call.op)) == out,
          "the first input does not broadcast to {}", to_string(out));
  OpRule rule;
  rule.outputs.push_back(out);
  add_axis(rule, a[0], {batch_dim(input, 0, out, 0), 0, -1}, {0});
  add_axis(rule, b[1], {batch_dim(input, 0, out, 1), -1, 1}, {1});
  add_axis(rule, a[1], {-1, 1, 0}, {-1}).role = MeshRole::kBias;
  add_biased_partials(rule, call, 1, 2, 0);
  return rule;
}

OpRule linear(const OpCall& call) {
  const Shape &x = shape_of(call, 0), &weight = shape_of(call, 1);
  const bool in_out = call.attributes.ints[0] != 0;
  const bool biased = has_input(call, 2);
  require(call, weight.size() == 2, "expected a weight of 2 dims");
  const int in = in_out ? 0 : 1;
  require(call, x.size() >= 1 && x.back() == weight[in], "x {} does not fit weight {}",
          to_string(x), to_string(weight));
  if (biased)
    require(call, shape_of(call, 2) == Shape{weight[1 - in]}, "bias {} does not fit weight {}",
            to_string(shape_of(call, 2)), to_string(weight));
  OpRule rule;
  const int last = x.size() - 1;
  Shape out = x;
  out[last] = weight[1 - in];
  rule.outputs.push_back(out);
  for (int d = 0; d < last; ++d) add_axis(rule, x[d], {d, -1, -1}, {d});
  add_axis(rule, weight[1 - in], {-1, 1 - in, 0}, {last});
  ShardAxis& contraction = add_axis(rule, x[last], {last, in, -1}, {-1});
  if (biased) contraction.role = MeshRole::kBias;
  for (ShardAxis& axis : rule.axes) axis.inputs.resize(call.inputs.size());
  add_biased_partials(rule, call, 0, 1, 2);
  return rule;
}

}  // namespace

OpRule matrices(const OpCall& call) {
  if (call.op == OpId::kLinear) return linear(call);
  if (call.op == OpId::kAddmm) return addmm(call);
  return matmul(call);
}

}  // namespace meshloom::planner::rules
