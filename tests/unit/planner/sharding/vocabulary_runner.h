// SPDX-License-Identifier: Apache-2.0
// Cross entropies whose rows or classes are spread over ranks, as one rank's differentiable share:
// what a distributed implementation computes, with the other ranks' parts as constants.
#pragma once

#include <vector>

#include "daemon/tensor/tensor.h"
#include "planner/sharding/propagate.h"

namespace meshloom::test {

/// `inputs` are this rank's, `globals` the whole ones. Gradients reach `inputs` alone, as much of
/// them as this rank's part of the logits gives.
std::vector<Tensor> run_vocabulary_op(const planner::OpCall& call,
                                      const planner::ShardingDecision& decision,
                                      const std::vector<int>& coordinates,
                                      const std::vector<Tensor>& inputs,
                                      const std::vector<Tensor>& globals);

}  // namespace meshloom::test
