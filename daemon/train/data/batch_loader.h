// SPDX-License-Identifier: Apache-2.0
// BatchLoader: the micro batches of a step on the host, in an order that every mesh shares.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/nn/models/model.h"
#include "daemon/train/data/batch_plan.h"
#include "daemon/train/data/dataset.h"

namespace meshloom::train {

/// One micro batch of this rank, before it becomes tensors.
struct HostBatch {
  std::int64_t rows = 0;          ///< B; may be 0
  std::int64_t first_sample = 0;  ///< index of row 0 inside the global batch
  std::int64_t counted = 0;       ///< labels that count
  /// That are trained on: as counted; with `masked` and of conversations all but padding.
  std::int64_t tokens = 0;
  double bytes = 0.0;  ///< of text that the labels stand for; 0: not known
  /// Lengths of what sees itself alone, padding left out: of the documents of each row with
  /// document_mask, else of the rows.
  std::vector<std::int64_t> spans;
  /// [B,T] each; documents is empty where a row is all one document, or padding behind it is not
  /// seen anyway; positions without reset_positions.
  std::vector<std::int64_t> inputs, labels, documents, positions;
};

class BatchLoader {
 public:
  /// Sample g of the whole training is element g % n of the order of epoch g / n, n = dataset size:
  /// a keyed permutation if `shuffle`, else the natural order.
  /// If the dataset's options say masked, tokens are hidden by `seed` and place (mask_sample).
  BatchLoader(std::shared_ptr<const Dataset> dataset, BatchPlan plan, std::uint64_t seed,
              bool shuffle);

  const BatchPlan& plan() const { return plan_; }
  const Dataset& dataset() const { return *dataset_; }

  /// The dataset's sample at place `g` of the training.
  std::int64_t sample_at(std::int64_t g) const;
  /// This rank's micro batches of the global batch that begins at place `position`, limited to
  /// `limit` samples (evaluation of what is left; global_batch_size otherwise).
  std::vector<HostBatch> load(std::int64_t position, std::int64_t rank, std::int64_t limit) const;
  std::vector<HostBatch> load(std::int64_t position, std::int64_t rank) const {
    return load(position, rank, plan_.global_batch_size);
  }

 private:
  /// Reads the rows of a micro batch, of which the first is at a place of the training.
  void fill(HostBatch& batch, std::int64_t place) const;

  std::shared_ptr<const Dataset> dataset_;
  BatchPlan plan_;
  std::uint64_t seed_;
  bool shuffle_;
};

/// The tensors of a micro batch that has rows.
nn::Batch to_batch(ExecutionContext&, const HostBatch&, std::int64_t seq_len);

}  // namespace meshloom::train
