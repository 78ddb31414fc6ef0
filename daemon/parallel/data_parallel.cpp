// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/data_parallel.h"

#include "daemon/parallel/fully_shard/fully_shard.h"
#include "daemon/parallel/gradient_reducer.h"
#include "daemon/tensor/autograd/leaf_grad.h"

namespace meshloom::parallel {
namespace {

/// Every rank keeps all parameters, with memory and values of their own.
class Replicated : public DataParallel {
 public:
  explicit Replicated(const std::vector<DataParallelInput>& inputs) {
    for (const DataParallelInput& input : inputs) {
      materialize(input.parameter->value);
      parameters_.push_back({input.candidate.name, input.parameter});
    }
  }
};

/// A gradient is made when the backward of its layer comes to it, in memory that activations of
/// later layers have left, and goes before the next step's activations come.
class Alone final : public Replicated {
 public:
  using Replicated::Replicated;
  void begin_step() override {
    for (const nn::NamedParameter& p : parameters_)
      if (const auto& leaf = p.parameter->value.leaf_grad()) leaf->release();
  }
};

class Reduced final : public Replicated {
 public:
  Reduced(ExecutionContext& context, comm::ProcessGroup& data,
          const std::vector<DataParallelInput>& inputs)
      : Replicated(inputs), reducer_(context, data, trained_parameters(parameters_)) {}

  void begin_backward(bool last) override {
    last_ = last;
    if (last) reducer_.begin();
  }
  void end_backward() override {
    if (last_) reducer_.finish();
  }
  void take_part(bool last) override {
    if (last) reducer_.finish();
  }
  void sum_gradients() override { reducer_.finish(); }

 private:
  GradientReducer reducer_;
  bool last_ = true;  ///< of the micro batch in backward
};

}  // namespace

std::unique_ptr<DataParallel> make_data_parallel(
    ExecutionContext& context, const DataParallelGroups& groups,
    const std::vector<DataParallelInput>& inputs,
    const std::optional<FullyShardOptions>& fully_shard) {
  if (fully_shard && groups.gather->size() > 1) {
    comm::ProcessGroup* replicas = groups.replicas->size() > 1 ? groups.replicas : nullptr;
    return std::make_unique<FullyShard>(
        context, FullyShardGroups{groups.gather, groups.reduce, replicas, groups.data}, inputs,
        *fully_shard);
  }
  if (groups.data->size() > 1) return std::make_unique<Reduced>(context, *groups.data, inputs);
  return std::make_unique<Alone>(inputs);
}

}  // namespace meshloom::parallel
