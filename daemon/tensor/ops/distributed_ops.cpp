// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/distributed_ops.h"

#include <array>

namespace meshloom::ops {

std::span<const DistributedOp> distributed_ops() {
  using planner::OpId;
  static const std::array<DistributedOp, 6> all = {{
      {OpId::kEmbedding, planner::implemented_roles(OpId::kEmbedding), embedding_by_rows},
      {OpId::kCrossEntropy, planner::implemented_roles(OpId::kCrossEntropy),
       cross_entropy_of_shards, true},
      {OpId::kLinearCrossEntropy, planner::implemented_roles(OpId::kLinearCrossEntropy),
       linear_cross_entropy_by_vocabulary, true},
      {OpId::kMean, planner::implemented_roles(OpId::kMean), mean_of_shards},
      {OpId::kLinear, planner::implemented_roles(OpId::kLinear), linear_with_bias_once},
      {OpId::kAddmm, planner::implemented_roles(OpId::kAddmm), addmm_with_bias_once},
  }};
  return all;
}

}  // namespace meshloom::ops
