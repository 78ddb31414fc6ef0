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
  /// collectives over these mesh dims. Along them every rank's weight rows or logits are one range
  /// of the vocabulary; embedding leaves out ids that are not in it and its output is Partial(sum),
  /// the cross entropies reduce over the ranks (row maximum, sum of exponentials, logit of the
  /// target) and their output is R.
  std::vector<int> vocabulary_mesh_dims;
  /// kCrossEntropy with reduction mean whose rows are sharded over these mesh dims: the number of
  /// labels that count is known to all ranks together alone. Sums of losses and counts are reduced
  /// over these mesh dims by the op's distributed implementation; its output is R. (none and sum
  /// need no such thing: their outputs are S and Partial(sum).)
  std::vector<int> label_mesh_dims;
  /// kLinear and kAddmm whose product is Partial on these mesh dims while the bias (kAddmm: the
  /// first input) is R: ranks with a coordinate other than 0 on any of them run without it. Their
  /// gradient of it is zero, that of the others whole, so that it is Partial(sum).
  std::vector<int> bias_on_first_only;
  /// kMean over sharded dims: local results are sums, to be divided by this many elements.
  std::optional<std::int64_t> mean_divisor;
};

/// The cheapest strategy per mesh dim (rule.h). What needs no message is taken before all else,
/// fewer changed placements first; where messages are needed, outputs that become Partial count
/// what reducing them will cost. Equal layouts come back as the same object as the input they
/// equal.
///
/// Throws InvalidArgument naming the op and the layouts: inputs on different meshes, orders that do
/// not go together (D19), shapes that the op does not take.
ShardingDecision propagate(const OpCall& call, const RedistributeOptions& options = {},
                           PlanCache* plans = nullptr);

/// The attributes that the rank at `coordinates` gives its local op. Those of the call, but for
///   kReshape, kExpand  dims: the shape of the local output
///   kSlice             bounds of the same piece in the local dim, where that dim is sharded
///   kSplit             ints[0]: the size of a local piece (at least 1; a rank that holds nothing
///                      gives as many empty pieces as there are outputs)
///   kTri               ints[0]: the diagonal counted from the local corner
///   kAttention         dims: {first row of the batch, first query head, query heads in all, query
///                      heads per key head} of this rank, so that dropout, ALiBi and grouped heads
///                      are global. Where k and v have all key heads but q has not, local query
///                      head h uses key head (dims[1] + h) / dims[3].
///   kRope              dims: {first position of this rank}, for a call without positions. Where
///                      the sequence is held as several ranges, its LocalPart lists the positions.
OpAttributes local_attributes(const OpCall& call, const ShardingDecision& decision,
                              const std::vector<int>& coordinates);

}  // namespace meshloom::planner
