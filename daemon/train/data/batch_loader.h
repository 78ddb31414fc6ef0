// SPDX-License-Identifier: Apache-2.0
// BatchLoader: the micro batches of a step on the host, in an order that every mesh shares.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/train/data/batch_plan.h"
#include "daemon/train/data/dataset.h"
#include "daemon/train/data/token_batch.h"

namespace meshloom::train {

/// Its micro batches have `documents` only where a row is not all one document and padding behind
/// it would be seen, and `positions` only with reset_positions.
class BatchLoader {
 public:
  /// Sample g of the whole training is element g % n of the order of epoch g / n, n = dataset size:
  /// a keyed permutation if `shuffle`, else the natural order.
  /// If the dataset's options say masked, tokens are hidden by `seed` and place (mask_sample).
  BatchLoader(std::shared_ptr<const Dataset> dataset, BatchPlan plan, std::uint64_t seed,
              bool shuffle);

  const BatchPlan& plan() const { return plan_; }
  const Dataset& dataset() const { return *dataset_; }

  /// Returns the dataset's sample at place `g` of the training.
  std::int64_t sample_at(std::int64_t g) const;
  /// This rank's micro batches of the global batch that begins at place `position`, limited to
  /// `limit` samples (evaluation of what is left; global_batch_size otherwise).
  std::vector<TokenBatch> load(std::int64_t position, std::int64_t rank, std::int64_t limit) const;
  std::vector<TokenBatch> load(std::int64_t position, std::int64_t rank) const {
    return load(position, rank, plan_.global_batch_size);
  }

 private:
  /// Reads the rows of a micro batch, of which the first is at a place of the training.
  void fill(TokenBatch& batch, std::int64_t place) const;

  std::shared_ptr<const Dataset> dataset_;
  BatchPlan plan_;
  std::uint64_t seed_;
  bool shuffle_;
};

}  // namespace meshloom::train
