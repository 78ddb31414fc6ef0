// SPDX-License-Identifier: Apache-2.0
// Batches over the ranks of a sequence.
#pragma once

#include <span>

#include "daemon/dtensor/distributed_engine.h"
#include "daemon/nn/models/host_batch.h"
#include "daemon/nn/models/model.h"
#include "daemon/parallel/context_parallel/document_rows.h"
#include "daemon/tensor/host_uploads.h"
#include "planner/attention/context_parallel_plan.h"

namespace meshloom::parallel {

/// BatchSharding says which ranks share the sequences of a model, and how they are dealt.
struct BatchSharding {
  dtensor::DistributedEngine& engine;
  int mesh_dim;
  const planner::ContextParallelPlan& plan;
  const nn::ModelConfig& model;
};

/// This rank's part of a batch, planned on the host: inputs, labels, weights and positions of the
/// tokens that the plan's balancer deals to it, by the model's mask and the documents of each row,
/// with the layouts that say so. Positions that were left out are filled in, since one row of them
/// for all would not show whose order it has; so are BERT's token types. Documents stay whole. Only
/// what this rank has goes to the device, and nothing is sent. The host batch is the same on all
/// ranks of the mesh, and has rows and labels.
///
/// Throws InvalidArgument if the plan balances documents and there are none.
nn::Batch shard_batch(const BatchSharding& sharding, HostUploads& uploads,
                      const nn::HostBatch& host);

/// Does the same for a batch that came as tensors. `in`: the tensors of the batch by
/// nn::BatchInput, replicated, as an nn::ForwardHook has them. Labels, which may have to be shifted
/// first, weights, the mask and documents stay whole. `documents` reads the ids. A batch without
/// labels, and one whose ids are sharded along the sequence already, stays as it is.
void shard_batch(const BatchSharding& sharding, std::span<Tensor> in, DocumentReader& documents);

}  // namespace meshloom::parallel
