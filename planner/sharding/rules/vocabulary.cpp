// SPDX-License-Identifier: Apache-2.0
// Ops with a vocabulary: embedding and both cross entropies. Along the vocabulary the local op is
// not enough (ids and labels are global, rows are normalised over all ranks): these axes ask for
// the op's distributed implementation.
#include <array>

#include "planner/sharding/rules/rules.h"

namespace meshloom::planner::rules {
namespace {

enum Reduction : std::int64_t { kNone = 0, kMean = 1, kSum = 2 };

OpRule embedding(const OpCall& call) {
  const Shape &weight = shape_of(call, 0), &ids = shape_of(call, 1);
  require(call, weight.size() == 2, "expected a weight of 2 dims");
  OpRule rule;
  Shape out = ids;
  out.push_back(weight[1]);
  rule.outputs.push_back(out);
  for (int d = 0; d < ids.size(); ++d) add_axis(rule, ids[d], {-1, d}, {d});
  add_axis(rule, weight[1], {1, -1}, {ids.size()});
  ShardAxis& vocabulary = add_axis(rule, weight[0], {0, -1}, {-1});
  vocabulary.contiguous = true;
  vocabulary.role = MeshRole::kVocabulary;
  add_partial(rule, call, {0}, PartialOp::kSum);
  add_partial(rule, call, {0}, PartialOp::kAvg);
  return rule;
}

OpRule cross_entropy(const OpCall& call) {
  const Shape &logits = shape_of(call, 0), &targets = shape_of(call, 1);
  const std::int64_t reduction = call.attributes.ints[0];
  require(call, logits.size() >= 1, "expected logits [V], [N,V] or [N,V,d..]");
  const int classes = logits.size() == 1 ? 0 : 1;
  Shape expected = logits;
  expected.erase(classes);
  require(call, targets == expected, "targets of shape {}, expected {}", to_string(targets),
          to_string(expected));
  OpRule rule;
  rule.outputs.push_back(reduction == kNone ? targets : Shape{});
  for (int d = 0; d < targets.size(); ++d) {
    const int in_logits = d < classes ? d : d + 1;
    ShardAxis& axis = add_axis(rule, targets[d], {in_logits, d}, {reduction == kNone ? d : -1});
    if (reduction != kMean) continue;
    axis.role = MeshRole::kLabels;
    axis.reduced = Placement::replicate();
  }
  ShardAxis& axis = add_axis(rule, logits[classes], {classes, -1}, {-1});
  axis.reduced = Placement::replicate();
  axis.contiguous = true;
  axis.role = MeshRole::kVocabulary;
  return rule;
}

OpRule linear_cross_entropy(const OpCall& call) {
  const Shape &hidden = shape_of(call, 0), &weight = shape_of(call, 1),
              &targets = shape_of(call, 3);
  require(call, hidden.size() >= 1 && weight.size() == 2 && hidden.back() == weight[1],
          "hidden {} does not fit weight {}", to_string(hidden), to_string(weight));
  const std::int64_t results = call.attributes.ints[0];
  Shape rows = hidden, expected = hidden;
  rows.erase(hidden.size() - 1);
  expected.erase(hidden.size() - 1);
  const bool several = results == kTokenLosses && targets.size() == hidden.size();
  if (several) expected.push_back(targets.back());
  require(call, targets == expected, "targets of shape {}, expected {}", to_string(targets),
          to_string(expected));
  if (results == kWeightedSum)
    require(call, shape_of(call, 4) == targets, "row weights of shape {} for targets {}",
            to_string(shape_of(call, 4)), to_string(targets));
  if (has_input(call, 2))
    require(call, shape_of(call, 2) == Shape{weight[0]}, "bias {} does not fit weight {}",
            to_string(shape_of(call, 2)), to_string(weight));
  OpRule rule;
  if (results != kTokenLosses) rule.outputs.push_back(Shape{1});
  if (results != kLossSum) rule.outputs.push_back(targets);
  const auto axis_of = [&](std::int64_t size, std::array<int, 4> in, int row) -> ShardAxis& {
    ShardAxis& axis = add_axis(rule, size, {in[0], in[1], in[2], in[3]}, {});
    if (results == kWeightedSum) axis.inputs.push_back({row});
    if (results != kTokenLosses) axis.outputs.push_back({-1});
    if (results != kLossSum) axis.outputs.push_back({row});
    return axis;
  };
  for (int d = 0; d < rows.size(); ++d) axis_of(rows[d], {d, -1, -1, d}, d);
  ShardAxis& axis = axis_of(weight[0], {-1, 0, has_input(call, 2) ? 0 : -1, -1}, -1);
  axis.reduced = Placement::replicate();
  axis.contiguous = true;
  axis.role = MeshRole::kVocabulary;
  return rule;
}

}  // namespace

OpRule vocabulary(const OpCall& call) {
  if (call.op == OpId::kEmbedding) return embedding(call);
  if (call.op == OpId::kCrossEntropy) return cross_entropy(call);
  return linear_cross_entropy(call);
}

}  // namespace meshloom::planner::rules
