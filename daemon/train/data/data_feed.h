// SPDX-License-Identifier: Apache-2.0
// DataFeed: the batches of a job's data by their place, for training and for validation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/nn/models/model_config.h"
#include "daemon/train/data/batch_loader.h"
#include "daemon/train/data/batch_work.h"
#include "daemon/train/data/run_data.h"

namespace meshloom::train {

/// FedBatch holds the micro batches of a rank, and the labels and work of all ranks' together.
struct FedBatch {
  std::vector<TokenBatch> micro_batches;
  std::int64_t labels = 0;
  BatchWork work;
};

/// Every rank has one; those that share samples load the same.
class DataFeed {
 public:
  /// `config` is resolved; `data_ranks` have other samples. No collectives.
  DataFeed(const v1::RunConfig& config, const RunData& data, const nn::ModelConfig& model,
           const comm::ProcessGroup& data_ranks);

  const v1::DataIdentity& identity() const { return identity_; }
  std::int64_t training_samples() const { return training_ ? training_->dataset().size() : 0; }
  /// Returns the cuts of what is trained on, where it is conversations.
  std::optional<ChatCuts> chat_cuts() const;
  /// From here on validations are of whole windows, as those of older jobs: the last tokens of
  /// packed data, which fill none, are left out. Returns whether there are such tokens.
  bool leave_out_rests();

  /// Returns the global batch that begins at the training's sample `position`. Every rank of
  /// `world` calls it; `counts`: this rank speaks for those that share its samples. If one rank's
  /// data are bad, all throw its error; InvalidArgument if no label of the batch counts,
  /// FailedPrecondition if the data have no sample to train on.
  FedBatch training_batch(std::int64_t position, comm::ProcessGroup& world, bool counts) const;

  /// Returns batches of a validation set (its name; empty: the validation data of config.data) from
  /// number `first` on, always the same ones; fewer than `batches` if the data end. Throws
  /// FailedPrecondition if there are no such data. No collectives.
  std::int64_t validation_batches(const std::string& set, std::int64_t first,
                                  std::int64_t batches) const;
  std::vector<TokenBatch> validation_batch(const std::string& set, std::int64_t index) const;

 private:
  const BatchLoader& validation(const std::string& set) const;

  nn::ModelConfig model_;
  v1::DataIdentity identity_;
  std::unique_ptr<BatchLoader> training_;  ///< null: no sample, of what is only evaluated
  std::map<std::string, std::unique_ptr<BatchLoader>> validation_;  ///< by set
  std::int64_t data_rank_;
};

}  // namespace meshloom::train
