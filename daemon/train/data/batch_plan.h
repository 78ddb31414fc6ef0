// SPDX-License-Identifier: Apache-2.0
// Which samples of a global batch a rank computes in which micro batch: pure values.
#pragma once

#include <algorithm>
#include <cstdint>

namespace meshloom::train {

/// Samples [begin, end) of a global batch.
struct SampleRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// The global batch is cut into global micro batches of micro_batch_size x ranks samples, the last
/// one smaller; each is divided over the ranks by the ceil rule, so later ranks may get fewer or
/// none. The set and order of a step's samples is therefore the same on every mesh.
struct BatchPlan {
  std::int64_t global_batch_size = 1;
  std::int64_t micro_batch_size = 1;  ///< samples of a rank at once
  std::int64_t ranks = 1;

  std::int64_t global_micro_batch() const { return micro_batch_size * ranks; }
  std::int64_t micro_batches() const {
    return (global_batch_size + global_micro_batch() - 1) / global_micro_batch();
  }
  SampleRange of(std::int64_t micro_batch, std::int64_t rank) const {
    const std::int64_t begin = micro_batch * global_micro_batch();
    const std::int64_t end = std::min(begin + global_micro_batch(), global_batch_size);
    const std::int64_t chunk = (end - begin + ranks - 1) / ranks;
    return {std::min(begin + rank * chunk, end), std::min(begin + (rank + 1) * chunk, end)};
  }
};

}  // namespace meshloom::train
