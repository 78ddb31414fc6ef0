// SPDX-License-Identifier: Apache-2.0
// Sharding propagation: chooses the layouts in which an op runs.
#pragma once

#include <optional>
#include <vector>

#include "planner/redistribute/planner.h"
#include "planner/sharding/op_call.h"

namespace meshloom::planner {

/// How an op runs on the shards, for every rank alike.
///
/// Gradients: the gradient of an output has the output's layout with Partial replaced by Replicate.
/// Given that, each rank's backward of its local op leaves the gradient of input i in
/// `input_grads[i]`: on a mesh dim where the input is sharded, the same shard; where it is Partial,
/// Replicate; where it is Replicate, Replicate if every rank of that dim computed the same, else
/// Partial(sum).
struct ShardingDecision {
  std::vector<SpecPtr> inputs;  ///< what each input is redistributed to first; null where left out
  std::vector<SpecPtr> input_grads;
  std::vector<SpecPtr> outputs;
  /// Cost of redistributing the inputs, by the cost model that chose.
  double cost = 0.0;
  /// The op must be run by its own distributed implementation, since the local op on local inputs
  /// is not enough: a vocabulary that is sharded (embedding, both cross entropies), with
  /// collectives over these mesh dims.
  std::vector<int> vocabulary_mesh_dims;
  /// kMean over sharded dims: local results are sums, to be divided by this many elements.
  std::optional<std::int64_t> mean_divisor;
};

/// Throws InvalidArgument naming the op and the layouts: inputs on different meshes, orders that do
/// not go together (D19), shapes that the op does not take.
ShardingDecision propagate(const OpCall& call, const RedistributeOptions& options = {},
                           PlanCache* plans = nullptr);

/// The attributes that the rank at `coordinates` gives its local op: shapes and bounds replaced by
/// local ones.
OpAttributes local_attributes(const OpCall& call, const ShardingDecision& decision,
                              const std::vector<int>& coordinates);

}  // namespace meshloom::planner
