// SPDX-License-Identifier: Apache-2.0
// Attention and rotary embedding. Batch and heads are axes of attention; along its sequence only a
// distributed implementation can run.
#include <algorithm>

#include "planner/sharding/rules/rules.h"

namespace meshloom::planner::rules {
namespace {

constexpr int kBias = 3, kDocuments = 4;

/// An input that broadcasts against [B, H, S, S] has dim d only if it is not 1.
int bias_dim(const OpCall& call, int d, std::int64_t size) {
  if (!has_input(call, kBias)) return -1;
  const Shape& bias = shape_of(call, kBias);
  const int at = d - (4 - bias.size());
  return at >= 0 && bias[at] == size ? at : -1;
}

void check_shapes(const OpCall& call, const Shape& q, const Shape& k, const Shape& v) {
  require(call, q.size() == 4 && k.size() == 4 && v.size() == 4, "expected q, k, v [B,H,S,D]");
  require(call, q[0] == k[0] && q[0] == v[0] && k[1] == v[1] && k[2] == v[2] && q[3] == k[3],
          "q, k and v do not go together");
  require(call, k[1] > 0 && q[1] % k[1] == 0, "{} query heads for {} key heads", q[1], k[1]);
}

/// Queries that every rank has whole see keys that lie on several.
bool keys_stay(const OpCall& call) {
  if (call.attributes.ints[0] != 1 || has_input(call, kBias) || has_input(call, kDocuments))
    return false;
  const DTensorSpec &q = *call.inputs[0], &k = *call.inputs[1];
  const std::vector<int>& dims = k.sharding_dims(2);
  if (!q.sharding_dims(2).empty() || dims.empty()) return false;
  const DimOrderPtr& order = k.dim_order(dims.front());
  return order == nullptr || !order->by_row();
}

/// Whether the queries of one sequence and the keys of another lie over the same mesh dims.
bool sharded_together(const OpCall& call) {
  const DTensorSpec &q = *call.inputs[0], &k = *call.inputs[1], &v = *call.inputs[2];
  const std::vector<int>& dims = q.sharding_dims(2);
  return !dims.empty() && k.sharding_dims(2) == dims && v.sharding_dims(2) == dims &&
         same_order(k.dim_order(dims.front()), v.dim_order(dims.front()));
}

OpRule sdpa(const OpCall& call) {
  const Shape &q = shape_of(call, 0), &k = shape_of(call, 1), &v = shape_of(call, 2);
  check_shapes(call, q, k, v);
  OpRule rule;
  rule.outputs = {Shape{q[0], q[1], q[2], v[3]}, Shape{q[0], q[1], q[2]}};
  const auto add = [&](std::int64_t size, std::initializer_list<int> inputs,
                       std::initializer_list<int> outputs) -> ShardAxis& {
    ShardAxis& axis = add_axis(rule, size, inputs, outputs);
    axis.inputs.resize(call.inputs.size());
    axis.contiguous = true;
    return axis;
  };
  const bool documents = has_input(call, kDocuments);
  add(q[0], {0, 0, 0, bias_dim(call, 0, q[0]), documents ? 0 : -1}, {0, 0});
  // Query and key heads are sharded alike: in units of a group of query heads, which is flat axis
  // [key heads, group].
  const std::int64_t group = q[1] / k[1];
  ShardAxis& alike = add(q[1], {1, 1, 1, bias_dim(call, 1, q[1]), -1}, {1, 1});
  alike.inputs[1].suffix = alike.inputs[2].suffix = group;
  // Any sharding of the query heads; each rank takes what it needs of all key heads.
  add(q[1], {1, -1, -1, bias_dim(call, 1, q[1]), -1}, {1, 1});
  // Documents and the keys of a bias are whole on every rank.
  const auto add_sequence = [&](int keys) -> ShardAxis& {
    ShardAxis& axis = add(q[2], {2, keys, keys, bias_dim(call, 2, q[2]), -1}, {2, 2});
    axis.contiguous = false;  // positions that were permuted for balance
    axis.role = MeshRole::kSequence;
    return axis;
  };
  // Of sequences of two lengths each has its own order, or the keys are whole on every rank, too.
  const bool two_sequences = q[2] != k[2];
  if (two_sequences && sharded_together(call)) {
    ShardAxis& axis = add_sequence(2);
    axis.inputs[1].keeps_input = axis.inputs[2].keeps_input = 1;
  }
  add_sequence(two_sequences ? -1 : 2);
  if (keys_stay(call)) {
    ShardAxis& axis = add(k[2], {-1, 2, 2, -1, -1}, {-1, -1});
    axis.contiguous = false;
    axis.role = MeshRole::kKeys;
    axis.reduced = Placement::replicate();
  }
  return rule;
}

OpRule sdpa_of_rows(const OpCall& call) {
  const Shape& q = shape_of(call, 0);
  const int inputs = static_cast<int>(call.inputs.size());
  require(call, q.size() == 4 && inputs == 1 + 2 * static_cast<int>(q[0]),
          "expected q [B,H,1,D], then k and v of each row");
  const Shape v = shape_of(call, 2);
  for (int i = 1; i < inputs; i += 2)
    check_shapes(call, {1, q[1], q[2], q[3]}, shape_of(call, i), shape_of(call, i + 1));
  OpRule rule;
  rule.outputs = {Shape{q[0], q[1], q[2], v[3]}};
  const auto add_heads = [&](int keys) {
    ShardAxis& axis = add_axis(rule, q[1], {1}, {1});
    axis.inputs.resize(call.inputs.size(), {keys});
    axis.contiguous = true;
    for (std::size_t i = 1; keys >= 0 && i < call.inputs.size(); ++i)
      axis.inputs[i].suffix = q[1] / shape_of(call, static_cast<int>(i))[1];
  };
  add_heads(1);
  add_heads(-1);
  // Keys and values of all rows stay if they lie over the same mesh dims, each in an order of its
  // own.
  const std::vector<int>& dims = call.inputs[1]->sharding_dims(2);
  const bool alike = std::all_of(call.inputs.begin() + 1, call.inputs.end(),
                                 [&](const SpecPtr& x) { return x->sharding_dims(2) == dims; });
  if (dims.empty() || !alike) return rule;
  ShardAxis& axis = add_axis(rule, shape_of(call, 1)[2], {-1}, {-1});
  for (int i = 1; i < inputs; ++i) axis.inputs.push_back({.dim = 2, .keeps_input = i});
  axis.role = MeshRole::kKeys;
  axis.reduced = Placement::replicate();
  return rule;
}

OpRule rope(const OpCall& call) {
  const Shape& x = shape_of(call, 0);
  require(call, x.size() == 4, "expected x [B,H,S,D]");
  const bool positions = has_input(call, 3);
  if (positions)
    require(call, (shape_of(call, 3) == Shape{x[0], x[2]}), "expected positions [{}, {}]", x[0],
            x[2]);
  OpRule rule;
  rule.outputs.push_back(x);
  add_axis(rule, x[0], {0, -1, -1, positions ? 0 : -1}, {0});
  add_axis(rule, x[1], {1, -1, -1, -1}, {1});
  add_axis(rule, x[2], {2, -1, -1, positions ? 1 : -1}, {2});
  for (ShardAxis& axis : rule.axes) axis.inputs.resize(call.inputs.size());
  for (const PartialOp op : kLinearOps) add_partial(rule, call, {0}, op);
  return rule;
}

}  // namespace

OpRule attention(const OpCall& call) {
  if (call.op == OpId::kAttentionRows) return sdpa_of_rows(call);
  return call.op == OpId::kAttention ? sdpa(call) : rope(call);
}

}  // namespace meshloom::planner::rules
