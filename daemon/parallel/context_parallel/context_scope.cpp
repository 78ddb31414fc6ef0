// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/context_scope.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "daemon/parallel/context_parallel/context_attention.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

bool is_context_parallel(const dtensor::DistributedEngine& engine) {
  return engine.implementation_of(planner::OpId::kAttention) != nullptr;
}

}  // namespace

ContextParallelScope::ContextParallelScope(const SequenceSharding& sharding,
                                           std::vector<SequenceBuffer> buffers)
    : engine_(sharding.engine), buffers_(std::move(buffers)) {
  if (is_context_parallel(engine_))
    throw FailedPrecondition(
        "context_parallel: attention of this engine is context parallel already; scopes do not "
        "nest");
  sharding.mesh_dim_index();
  for (auto buffer = buffers_.begin(); buffer != buffers_.end(); ++buffer) {
    check(buffer->tensor != nullptr && buffer->tensor->defined(),
          "context_parallel: buffer {} is not there", buffer - buffers_.begin());
    check(!(buffer->tensor->is_leaf() && buffer->tensor->requires_grad()),
          "context_parallel: buffer {} of shape {} is a parameter", buffer - buffers_.begin(),
          buffer->tensor->shape());
    check(std::none_of(buffers_.begin(), buffer,
                       [&](const SequenceBuffer& other) {
                         return other.tensor->impl() == buffer->tensor->impl();
                       }),
          "context_parallel: buffer {} is there twice", buffer - buffers_.begin());
  }
  std::vector<Tensor> sharded;
  for (const SequenceBuffer& buffer : buffers_) {
    whole_.push_back(*buffer.tensor);
    sharded.push_back(
        shard_sequence(*buffer.tensor, buffer.sequence_dim, sharding, buffer.row_dim));
  }
  plans_ = enable_context_parallel(engine_, sharding.plan, SequenceDealer::kBalancer);
  for (std::size_t i = 0; i < buffers_.size(); ++i) *buffers_[i].tensor = std::move(sharded[i]);
}

ContextParallelScope::~ContextParallelScope() {
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i].restore) *buffers_[i].tensor = std::move(whole_[i]);
  engine_.remove_implementation(planner::OpId::kAttention);
  engine_.remove_implementation(planner::OpId::kAttentionRows);
}

void parallelize_attention(nn::Module& attention, const ContextParallelStyle& style) {
  const int mesh_dim = style.sharding.mesh_dim_index();
  const std::span<const std::string_view> given = attention.input_names();
  const std::vector<std::string> names(given.begin(), given.end());
  for (const auto& [name, dim] : style.sequence_dims)
    check(std::find(names.begin(), names.end(), name) != names.end(),
          "context_parallel: the module has no input '{}', but {}", name, fmt::join(names, ", "));
  if (!is_context_parallel(style.sharding.engine))
    enable_context_parallel(style.sharding.engine, style.sharding.plan, SequenceDealer::kBalancer);
  nn::ForwardHook hook;
  hook.before = [style, names, mesh_dim](std::span<Tensor> inputs) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto dim = style.sequence_dims.find(names[i]);
      if (dim == style.sequence_dims.end() || !inputs[i]) continue;
      const bool sharded =
          inputs[i].has_layout() && inputs[i].layout()->spec->placement(mesh_dim).is_shard();
      if (!sharded) inputs[i] = shard_sequence(inputs[i], dim->second, style.sharding);
    }
  };
  if (style.gathers_output)
    hook.after = [dim = style.output_sequence_dim](std::span<Tensor> outputs) {
      for (Tensor& output : outputs)
        if (output) output = unshard_sequence(output, dim);
    };
  attention.add_hook(std::move(hook));
}

}  // namespace meshloom::parallel
