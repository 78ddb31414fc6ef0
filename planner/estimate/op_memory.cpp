// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/op_memory.h"

namespace meshloom::planner {
namespace {

using enum GradientMemory;

/// Means and deviations of a norm with bias, deviations alone of one without.
OpMemory norm(const GraphStep& step, std::size_t weight) {
  const bool centers = step.inputs.size() > weight + 1 && step.inputs[weight + 1] >= 0;
  OpMemory memory{.makes_again = true, .row_statistics = centers ? 2 : 1};
  if (step.op == OpId::kAddNorm) {
    memory.keeps_outputs = {1};
    memory.gradients = {kInPlace, kInPlace};
  } else {
    memory.keeps_inputs = {0};
    memory.gradients = {kOwn};
  }
  return memory;
}

OpMemory linear(const GraphStep& step) {
  const int copies = step.input_activation ? 1 : 0;
  return {.keeps_input = true,
          .forward_copies = copies,
          .backward_copies = copies,
          .gradients = {kOwn}};
}

/// An input that was broadcast has a gradient of its own.
OpMemory sum(const GraphStep& step, const ModelGraph& graph) {
  OpMemory memory;
  const auto shape = [&](int t) { return graph.tensors[static_cast<std::size_t>(t)].shape; };
  for (const int t : step.inputs)
    memory.gradients.push_back(t >= 0 && shape(t) == shape(step.outputs[0]) ? kShared : kOwn);
  return memory;
}

}  // namespace

OpMemory op_memory(const GraphStep& step, const ModelGraph& graph) {
  switch (step.op) {
    case OpId::kNorm: return norm(step, 1);
    case OpId::kAddNorm: return norm(step, 2);
    case OpId::kLinear: return linear(step);
    case OpId::kAdd: return sum(step, graph);
    case OpId::kSwiglu:
      return {.makes_again = true, .keeps_inputs = {0, 1}, .gradients = {kOwn, kOwn}};
    case OpId::kAttention:
      return {.keeps_inputs = {0, 1, 2}, .keeps_outputs = {0, 1}, .gradients = {kOwn, kOwn, kOwn}};
    case OpId::kLinearCrossEntropy: return {.keeps_gradient = true, .gradients = {kShared}};
    case OpId::kUnary: {
      OpMemory memory{.gradients = {kOwn}};
      (step.keeps_output ? memory.keeps_outputs : memory.keeps_inputs) = {0};
      return memory;
    }
    case OpId::kMul:
    case OpId::kDiv: return {.keeps_inputs = {0, 1}, .gradients = {kOwn, kOwn}};
    case OpId::kTranspose:
    case OpId::kPermute:
    case OpId::kReshape:
    case OpId::kUnsqueeze:
    case OpId::kSqueeze:
    case OpId::kSplit:
    case OpId::kContiguous: return {.is_view = true, .gradients = {kShared}};
    case OpId::kSlice:
    case OpId::kExpand: return {.is_view = true, .gradients = {kOwn}};
    case OpId::kEmbedding: return {.keeps_inputs = {1}};
    default: return {.gradients = std::vector<GradientMemory>(step.inputs.size(), kOwn)};
  }
}

}  // namespace meshloom::planner
