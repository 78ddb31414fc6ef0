// SPDX-License-Identifier: Apache-2.0
// Tensors sharded along their sequences, in the order in which a balancer deals them, and whole
// again.
#pragma once

#include <string>
#include <vector>

#include "daemon/dtensor/distributed_engine.h"
#include "planner/attention/context_parallel_plan.h"

namespace meshloom::parallel {

/// SequenceSharding says which ranks share sequences, and by what they are dealt.
struct SequenceSharding {
  dtensor::DistributedEngine& engine;
  std::string mesh_dim;
  planner::ContextParallelPlan plan = {};
  /// Each row of the batch has a mask of what its queries see; one: the same in all rows.
  std::vector<planner::RowMask> rows = {planner::RowMask{{.is_causal = true}, nullptr}};

  /// Throws InvalidArgument naming the mesh's dims if it lacks this one.
  int mesh_dim_index() const;
};

/// Returns x with its dim `sequence_dim` (negative: from the end) sharded over the mesh dim; rows
/// lie in dim `row_dim` if their documents differ. x is plain and the same on all ranks of the
/// mesh, or has a layout of the engine that is Replicate along the mesh dim. Nothing is sent. Every
/// rank of the mesh calls it. Throws InvalidArgument, the same on every rank, for a dim that x
/// lacks, a layout that does not fit, rows that are not as many as x has, and as
/// planner::balanced_parts does.
Tensor shard_sequence(const Tensor& x, int sequence_dim, const SequenceSharding& sharding,
                      int row_dim = 0);

/// Returns x, which has a layout that is Replicate along a mesh dim, with `dim` sharded over that
/// mesh dim in this order; null: the ceil rule. Nothing is sent.
Tensor shard_in_order(const Tensor& x, int dim, int mesh_dim, const planner::DimOrderPtr& order);

/// Returns x whole along `sequence_dim`, in the order of its positions: what sharded it says x's
/// own layout. One all_gather for each mesh dim that does. Throws InvalidArgument if x has no
/// layout or none of them does.
Tensor unshard_sequence(const Tensor& x, int sequence_dim);

}  // namespace meshloom::parallel
