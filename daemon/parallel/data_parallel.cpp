// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/data_parallel.h"

#include "daemon/tensor/layout.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {

DataParallel::DataParallel(ExecutionContext& context, const DataParallelGroups& groups,
                           const std::vector<DataParallelInput>& inputs,
                           const std::optional<FullyShardOptions>& fully_shard)
    : context_(context), groups_(groups) {
  std::vector<FullyShardInput> to_cut;
  for (const DataParallelInput& input : inputs) {
    of_model_.push_back(input.of_model);
    to_cut.push_back({input.candidate, input.parameter});
  }
  if (fully_shard && groups.gather->size() > 1) {
    comm::ProcessGroup* replicas = groups.replicas->size() > 1 ? groups.replicas : nullptr;
    sharded_ = std::make_unique<FullyShard>(
        context, FullyShardGroups{groups.gather, groups.reduce, replicas, groups.data}, to_cut,
        *fully_shard);
    parameters_ = sharded_->parameters();
    return;
  }
  for (const DataParallelInput& input : inputs) {
    materialize(input.parameter->value);
    parameters_.push_back({input.candidate.name, input.parameter});
  }
  if (groups.data->size() > 1) {
    reducer_ = std::make_unique<GradientReducer>(context, *groups.data, parameters_);
  } else {
    // Gradients live as long as the run: made in one go, they leave the memory of steps in one
    // piece.
    for (const nn::NamedParameter& p : parameters_) p.parameter->value.leaf_grad()->buffer();
  }
}

std::optional<int> DataParallel::shard_dim(std::size_t i) const {
  return sharded_ ? sharded_->choices()[i].dim : std::nullopt;
}

std::string DataParallel::shard_reason(std::size_t i) const {
  return sharded_ ? sharded_->choices()[i].reason : std::string();
}

void DataParallel::begin_step() {
  if (sharded_) sharded_->begin_step();
}

void DataParallel::begin_forward(bool backward_follows) {
  if (sharded_) sharded_->begin_forward(backward_follows);
}

void DataParallel::end_forward() {
  if (sharded_) sharded_->end_forward();
}

void DataParallel::begin_backward(bool last) {
  last_ = last;
  if (sharded_) sharded_->begin_backward(last);
  if (reducer_ && last) reducer_->begin();
}

void DataParallel::end_backward() {
  if (sharded_) sharded_->end_backward();
  if (reducer_ && last_) reducer_->finish();
  if (last_) sum_partial_gradients();
}

void DataParallel::take_part(bool last) {
  last_ = last;
  if (sharded_) sharded_->take_part(last);
  if (reducer_ && last) reducer_->finish();
  if (last) sum_partial_gradients();
}

void DataParallel::take_part_forward() {
  if (sharded_) sharded_->take_part_forward();
}

void DataParallel::begin_generation(std::int64_t keep_bytes) {
  if (sharded_) sharded_->begin_generation(keep_bytes);
}

void DataParallel::next_pass() {
  if (sharded_) sharded_->next_pass();
}

void DataParallel::take_part_pass() {
  if (sharded_) sharded_->take_part_pass();
}

void DataParallel::end_generation() {
  if (sharded_) sharded_->end_generation();
}

/// They are small (norms and biases): one message.
void DataParallel::sum_partial_gradients() {
  if (groups_.tensor->size() == 1) return;
  std::vector<std::size_t> partial;
  std::int64_t size = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!of_model_[i].has_layout() || !gradient_spec(of_model_[i])->has_partial()) continue;
    partial.push_back(i);
    size += parameters_[i].parameter->value.numel();
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
  groups_.tensor->all_reduce(message.view(), comm::ReduceOp::kSum)->wait_host();
  each([&](const TensorView& grad, const TensorView& place) {
    context_.backend().copy(context_.kernel_context(), grad, place);
  });
}

}  // namespace meshloom::parallel
