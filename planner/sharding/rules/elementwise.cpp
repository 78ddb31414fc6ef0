// SPDX-License-Identifier: Apache-2.0
// Elementwise ops: every dim of the output is an axis; an input that is broadcast along it does not
// have it.
#include <algorithm>

#include "planner/sharding/rules/rules.h"

namespace meshloom::planner::rules {
namespace {

Shape broadcast(const OpCall& call) {
  Shape result;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Shape& shape = shape_of(call, static_cast<int>(i));
    while (result.size() < shape.size()) result.insert(0, 1);
    const int shift = result.size() - shape.size();
    for (int d = 0; d < shape.size(); ++d) {
      std::int64_t& size = result[d + shift];
      require(call, size == 1 || shape[d] == 1 || shape[d] == size,
              "the shapes do not go together");
      if (size == 1) size = shape[d];
    }
  }
  return result;
}

}  // namespace

OpRule elementwise(const OpCall& call) {
  OpRule rule;
  rule.outputs.push_back(broadcast(call));
  const bool matrix = call.op == OpId::kTri;
  require(call, !matrix || rule.outputs[0].size() >= 2, "expected at least 2 dims");
  if (call.op == OpId::kMaskedFill)
    require(call, rule.outputs[0] == shape_of(call, 0), "the mask does not broadcast to x");
  const Shape& out = rule.outputs[0];
  for (int d = 0; d < out.size(); ++d) {
    ShardAxis& axis = add_axis(rule, out[d], {}, {d});
    axis.contiguous = matrix && d >= out.size() - 2;
    for (const SpecPtr& input : call.inputs) {
      const int at = d - (out.size() - input->shape().size());
      axis.inputs.push_back({at >= 0 && input->shape()[at] == out[d] ? at : -1});
    }
  }
  // Partial values pass where the formula commutes with them.
  switch (call.op) {
    case OpId::kUnaryLinear:
    case OpId::kDropout:
    case OpId::kAdd: pass_partial(rule, call, kLinearOps); break;
    case OpId::kTri: pass_partial(rule, call, kAllOps); break;
    case OpId::kMul:
      add_partial(rule, call, {0}, PartialOp::kSum);
      add_partial(rule, call, {1}, PartialOp::kSum);
      break;
    case OpId::kDiv: add_partial(rule, call, {0}, PartialOp::kSum); break;
    case OpId::kWhere:
      for (const PartialOp op : kAllOps) add_partial(rule, call, {1, 2}, op);
      break;
    case OpId::kMaskedFill:
      // A sum would count the value once per rank; a sum turns into an average without a message.
      for (const PartialOp op : {PartialOp::kAvg, PartialOp::kMax, PartialOp::kMin})
        add_partial(rule, call, {0}, op);
      break;
    default: break;
  }
  return rule;
}

}  // namespace meshloom::planner::rules
