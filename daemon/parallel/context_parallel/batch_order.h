// SPDX-License-Identifier: Apache-2.0
// The tensors of a batch over the ranks of a sequence.
#pragma once

#include <span>

#include "daemon/dtensor/distributed_engine.h"
#include "daemon/nn/models/model.h"
#include "daemon/parallel/context_parallel/document_rows.h"
#include "planner/attention/context_parallel_plan.h"

namespace meshloom::parallel {

/// Shards a batch along its sequences over mesh dim `mesh_dim`, as the plan's balancer deals them
/// by the model's mask and the documents of each row. `in`: the tensors of the batch in the order
/// of nn::Model::input_names, replicated, as an nn::ForwardHook has them. Ids, token types and
/// positions are sharded (those that were left out are filled in, since one row of them for all
/// would not show whose order it has); labels, which may have to be shifted first, the mask and
/// documents stay whole. `documents` reads the ids. Nothing is sent. A batch without labels stays
/// as it is.
///
/// Throws InvalidArgument if the plan balances documents and there are none.
void shard_batch(dtensor::DistributedEngine& engine, int mesh_dim,
                 const planner::ContextParallelPlan& plan, const nn::Model& model,
                 std::span<Tensor> in, DocumentReader& documents);

}  // namespace meshloom::parallel
