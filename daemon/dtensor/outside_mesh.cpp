// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/outside_mesh.h"

#include <algorithm>

#include "daemon/tensor/autograd/function_node.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

using planner::OpId;

/// The dtype of result `output`.
DType result_dtype(OpId op, const planner::OpAttributes& attributes, std::span<const Tensor> inputs,
                   std::size_t output) {
  switch (op) {
    case OpId::kUnaryLinear:
    case OpId::kUnary:
      return attributes.ints[0] == 0 ? inputs[0].dtype()
                                     : static_cast<DType>(attributes.ints[0] - 1);
    case OpId::kWhere: return inputs[1].dtype();
    case OpId::kLinearCrossEntropy: return DType::kFloat32;
    case OpId::kAttention: return output == 0 ? inputs[0].dtype() : DType::kFloat32;
    default: return inputs[0].dtype();
  }
}

struct NothingBackward {
  struct Input {
    Shape shape;
    DType dtype = DType::kFloat32;
  };
  ExecutionContext* context;
  std::vector<Input> inputs;
  /// The parameters of a sum and norm get a gradient from the norm alone.
  bool norm_of_sum;

  void operator()(autograd::GradOutputs grads, autograd::GradSink& sink) const {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool reached = !norm_of_sum || i < 2 || grads[0].defined();
      if (reached && sink.wants(static_cast<int>(i)))
        sink.emit(static_cast<int>(i), zeros(*context, inputs[i].shape, inputs[i].dtype));
    }
  }
};

}  // namespace

Tensor outside_local(ExecutionContext& context, const Shape& global, DType dtype) {
  return global.empty() ? zeros(context, {}, dtype) : empty(context, {0}, dtype);
}

std::vector<Tensor> run_outside(OpId op, const planner::OpAttributes& attributes,
                                std::span<const Tensor> inputs,
                                const std::vector<planner::SpecPtr>& outputs) {
  ExecutionContext& context = std::find_if(inputs.begin(), inputs.end(), [](const Tensor& x) {
                                return x.defined();
                              })->context();
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    results.push_back(
        outside_local(context, outputs[i]->shape(), result_dtype(op, attributes, inputs, i)));
  std::vector<Tensor> recorded;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool is_extra = (op == OpId::kAttention || op == OpId::kLinearCrossEntropy) && i == 1;
    if (dtype_is_floating(results[i].dtype()) && !is_extra) recorded.push_back(results[i]);
  }
  if (recorded.empty() || !autograd::should_record(inputs)) return results;
  NothingBackward backward{&context, {}, op == OpId::kAddNorm};
  for (const Tensor& x : inputs)
    backward.inputs.push_back(x ? NothingBackward::Input{x.shape(), x.dtype()}
                                : NothingBackward::Input{});
  autograd::record(std::make_shared<autograd::FunctionNode<NothingBackward>>(planner::op_name(op),
                                                                             std::move(backward)),
                   inputs, recorded);
  return results;
}

}  // namespace meshloom::dtensor
