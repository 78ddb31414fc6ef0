// SPDX-License-Identifier: Apache-2.0
// Context parallelism of programs that know nothing of ranks: for tensors within a scope, and for
// the module that computes attention.
//
// It follows PyTorch's torch.distributed.tensor.experimental.context_parallel and its style for
// modules.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "daemon/nn/module.h"
#include "daemon/parallel/context_parallel/sequence_plan.h"
#include "daemon/parallel/context_parallel/sequence_sharding.h"

namespace meshloom::parallel {

/// SequenceBuffer is a tensor with a sequence. Other handles of the same tensor stay as they are.
struct SequenceBuffer {
  Tensor* tensor;       ///< outlives the scope; no leaf that requires a gradient
  int sequence_dim;     ///< negative: from the end
  bool restore = true;  ///< whole again when the scope ends; else it stays sharded
  int row_dim = 0;      ///< where rows lie, if their documents differ
};

/// While it lives, the buffers are sharded along their sequences (shard_sequence) and attention of
/// tensors of the engine may be (enable_context_parallel). Its end, by an exception too, gives the
/// buffers back the tensors that they were. Every rank of the mesh opens and closes it at the same
/// moment; nothing is sent. Causal attention in it of queries and keys of unlike lengths throws
/// InvalidArgument if the balancer is kHeadTail.
class ContextParallelScope {
 public:
  /// Throws FailedPrecondition if the engine's attention is context parallel already: in a scope
  /// that is open, or for good. Throws InvalidArgument for a buffer that is a parameter, that is
  /// there twice, or that shard_sequence refuses, and as enable_context_parallel does. Then
  /// nothing has changed.
  ContextParallelScope(const SequenceSharding& sharding, std::vector<SequenceBuffer> buffers);
  ~ContextParallelScope();
  ContextParallelScope(const ContextParallelScope&) = delete;
  ContextParallelScope& operator=(const ContextParallelScope&) = delete;

  /// Returns the plans that attention in the scope shares.
  const SequencePlanCache& plans() const { return *plans_; }

 private:
  dtensor::DistributedEngine& engine_;
  std::vector<SequenceBuffer> buffers_;
  std::vector<Tensor> whole_;  ///< what they were
  std::shared_ptr<SequencePlanCache> plans_;
};

/// A style says how the module that computes attention is spread over the ranks of a sequence.
struct ContextParallelStyle {
  SequenceSharding sharding;
  /// The sequence dims of its inputs by name (nn::Module::input_names); others are left alone. One
  /// that is sharded over the mesh dim already stays as it is.
  std::map<std::string, int> sequence_dims = {{"query", 2}, {"key", 2}, {"value", 2}};
  int output_sequence_dim = 2;
  /// If true, outputs are whole again (an all_gather each); else each rank has its part.
  bool gathers_output = false;
};

/// Gives the module hooks that shard its inputs and gather its outputs, and makes attention of the
/// engine context parallel, for good, unless it is. The engine outlives the module. Every rank of
/// the mesh calls it. Throws InvalidArgument for a mesh dim or an input that there is not; the
/// module does as attention in a ContextParallelScope does.
void parallelize_attention(nn::Module& attention, const ContextParallelStyle& style);

}  // namespace meshloom::parallel
