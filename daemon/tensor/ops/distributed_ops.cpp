// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/distributed_ops.h"

#include <array>

namespace meshloom::ops {

std::span<const DistributedOp> distributed_ops() {
  using planner::OpId;
  using enum planner::MeshRole;
  static constexpr std::array<DistributedOp, 6> all = {{
      {OpId::kEmbedding, {kVocabulary}, embedding_by_rows},
      {OpId::kCrossEntropy, {kVocabulary, kLabels}, cross_entropy_of_shards, true},
      {OpId::kLinearCrossEntropy, {kVocabulary}, linear_cross_entropy_by_vocabulary, true},
      {OpId::kMean, {kMean}, mean_of_shards},
      {OpId::kLinear, {kBias}, linear_with_bias_once},
      {OpId::kAddmm, {kBias}, addmm_with_bias_once},
  }};
  return all;
}

}  // namespace meshloom::ops
