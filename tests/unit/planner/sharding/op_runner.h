// SPDX-License-Identifier: Apache-2.0
// Runs an OpCall's op on tensors: on global ones, or as the rank of a decision would.
#pragma once

#include <vector>

#include "daemon/tensor/tensor.h"
#include "planner/sharding/propagate.h"

namespace meshloom::test {

inline constexpr double kMaskedValue = 0.75;

/// The op on whole tensors (undefined where left out), by daemon/tensor/ops.
std::vector<Tensor> run_op(planner::OpId op, const std::vector<Tensor>& inputs,
                           const planner::OpAttributes& attributes);

/// Results of kLinearCrossEntropy (LinearLossResults) from logits [.., V].
std::vector<Tensor> losses_of_logits(const Tensor& logits, const Tensor& targets,
                                     const Tensor& weights, std::int64_t results);

/// The local op of the rank at `coordinates` on its local inputs, with what a decision asks for
/// beyond it: biases left out, means of sums, a share of the vocabulary. Cross entropies over a
/// sharded vocabulary or over counted labels need other ranks and are not run here.
std::vector<Tensor> run_local_op(const planner::OpCall& call,
                                 const planner::ShardingDecision& decision,
                                 const std::vector<int>& coordinates,
                                 const std::vector<Tensor>& inputs);

}  // namespace meshloom::test
