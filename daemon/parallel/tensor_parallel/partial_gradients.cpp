// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/partial_gradients.h"

#include <utility>

#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/layout.h"

namespace meshloom::parallel {

PartialGradients::PartialGradients(ExecutionContext& context, comm::ProcessGroup& tensor,
                                   std::vector<nn::NamedParameter> parameters,
                                   std::vector<Tensor> of_model)
    : context_(context),
      tensor_(tensor),
      parameters_(std::move(parameters)),
      of_model_(std::move(of_model)) {}

void PartialGradients::sum() {
  if (tensor_.size() == 1) return;
  std::vector<std::size_t> partial;
  std::int64_t size = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& value = parameters_[i].parameter->value;
    if (!value.requires_grad() || !of_model_[i].has_layout()) continue;
    // Over tp alone: what ranks along other dims have is summed with data parallelism.
    const planner::SpecPtr gradient = gradient_spec(of_model_[i]);
    const auto tp = gradient->mesh().find_dim("tp");
    if (!tp || !gradient->placement(*tp).is_partial()) continue;
    partial.push_back(i);
    size += value.numel();
  }
  if (size == 0) return;
  const NoGradGuard no_grad(context_);
  const Tensor message = zeros(context_, {size}, DType::kFloat32);
  const auto each = [&](auto&& visit) {
    float* at = message.data<float>();
    for (const std::size_t i : partial) {
      const Tensor& value = parameters_[i].parameter->value;
      const auto& leaf = value.leaf_grad();
      const TensorView place = make_view(at, DType::kFloat32, value.shape(), message.device());
      if (leaf->has_value() && value.numel() > 0) visit(leaf->buffer().view(), place);
      at += value.numel();
    }
  };
  each([&](const TensorView& grad, const TensorView& place) {
    context_.backend().copy(context_.kernel_context(), place, grad);
  });
  tensor_.all_reduce(message.view(), comm::ReduceOp::kSum)
      ->enqueue_wait(context_.kernel_context().stream);
  each([&](const TensorView& grad, const TensorView& place) {
    context_.backend().copy(context_.kernel_context(), grad, place);
  });
}

}  // namespace meshloom::parallel
