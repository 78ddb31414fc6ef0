// SPDX-License-Identifier: Apache-2.0
// Which samples of a global batch a rank computes in which micro batch: pure values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/integer_math.h"
#include "planner/shard.h"

namespace meshloom::train {

/// The global batch is cut into global micro batches of micro_batch_size x ranks samples, the last
/// one smaller; each is divided over the ranks by the ceil rule, so later ranks may get fewer or
/// none. The set and order of a step's samples is therefore the same on every mesh.
struct BatchPlan {
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;  ///< samples of a rank at once
  std::int64_t ranks = 1;

  std::int64_t global_micro_batch() const { return micro_batch_size * ranks; }
  std::int64_t micro_batches() const { return divide_up(global_batch_size, global_micro_batch()); }
  /// Returns the samples of the global batch that a rank has in a micro batch, by their places in
  /// it.
  planner::ShardRange of(std::int64_t micro_batch, std::int64_t rank) const {
    const std::int64_t begin = micro_batch * global_micro_batch();
    const std::int64_t end = std::min(begin + global_micro_batch(), global_batch_size);
    const planner::ShardRange own = planner::shard_range(end - begin, ranks, rank);
    return {begin + own.begin, begin + own.end};
  }
};

}  // namespace meshloom::train
