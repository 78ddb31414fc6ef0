// SPDX-License-Identifier: Apache-2.0
// Sharding propagation: chooses the layouts in which an op runs.
#pragma once

#include <vector>

#include "planner/redistribute/planner.h"
#include "planner/sharding/op_call.h"

namespace meshloom::planner {

/// The decision says how an op runs on the shards, for every rank alike.
///
/// Gradients: the gradient of an output has the output's layout with Partial replaced by Replicate.
/// Given that, each rank's backward of its local op leaves the gradient of input i in
/// `input_grads[i]`: on a mesh dim where the input is sharded, the same shard; where it is Partial,
/// Replicate; where it is Replicate, Replicate if every rank of that dim computed the same, else
/// Partial(sum).
struct ShardingDecision {
  std::vector<SpecPtr> inputs;  ///< what each input is redistributed to first; null if left out
  std::vector<SpecPtr> input_grads;
  std::vector<SpecPtr> outputs;
  /// Cost of redistributing the inputs, by the cost model that chose.
  double cost = 0.0;
  /// Every role once. With any of them the op runs by its distributed implementation, else as the
  /// same op on local tensors.
  std::vector<RoleDims> roles;

  /// Returns the mesh dims of a role, ascending; empty if none has it.
  const std::vector<int>& mesh_dims(MeshRole role) const;
  bool has(MeshRole role) const { return !mesh_dims(role).empty(); }
};

/// Chooses the cheapest strategy per mesh dim (rule.h). What needs no message is taken before all
/// else, fewer changed placements first; if messages are needed, outputs that become Partial count
/// what reducing them will cost. Equal layouts come back as the same object as the input they
/// equal.
///
/// Throws InvalidArgument naming the op and the layouts: inputs on different meshes, orders that do
/// not go together (D19), shapes that the op does not take.
ShardingDecision propagate(const OpCall& call, const RedistributeOptions& options = {},
                           PlanCache* plans = nullptr);

/// Returns the attributes that the rank at `coordinates` gives its local op. They are those of the
/// call, but for
///   kReshape, kExpand  dims: the shape of the local output
///   kSlice             bounds of the same piece in the local dim, if that dim is sharded
///   kSplit             ints[0]: the size of a local piece (at least 1; a rank that holds nothing
///                      gives as many empty pieces as there are outputs)
///   kTri               ints[0]: the diagonal counted from the local corner
///   kAttention         dims: this rank's part by AttentionDim, so that dropout, ALiBi and grouped
///                      heads are global. Local query head h uses key head
///                      (dims[kFirstHead] + h) / dims[kHeadGroup].
///   kRope              dims: {first position of this rank}, for a call without positions. If
///                      the sequence is held as several ranges, its LocalPart lists the positions.
OpAttributes local_attributes(const OpCall& call, const ShardingDecision& decision,
                              const std::vector<int>& coordinates);

}  // namespace meshloom::planner
