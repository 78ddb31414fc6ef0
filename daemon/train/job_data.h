// SPDX-License-Identifier: Apache-2.0
// JobData: the data of a job's run, opened once, as batches and losses.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/train/data/data_feed.h"
#include "daemon/train/model_run.h"
#include "daemon/train/run.h"

namespace meshloom::train {

/// Every rank has one, for its run and not longer.
class JobData {
 public:
  /// Opens what config.data and config.validation name; `data_ranks` have other samples. No
  /// collectives.
  JobData(const RankResources& resources, const v1::RunConfig& config, const RunOptions& options,
          const nn::ModelConfig& model, const comm::ProcessGroup& data_ranks);

  const v1::DataIdentity& identity() const { return feed_.identity(); }
  DataSize size() const {
    return {identity().tokens(), feed_.training_samples(), feed_.chat_cuts()};
  }
  /// As DataFeed::leave_out_rests.
  bool leave_out_rests() { return feed_.leave_out_rests(); }
  /// As DataFeed::training_batch.
  FedBatch training_batch(const TrainingBatch& batch, const RunMesh& mesh) const;
  /// As Run::forward of such batches. Every rank of the world calls it.
  std::vector<LossSum> losses(ModelRun& model, const ValidationBatches& batches) const;

 private:
  comm::ProcessGroup& world_;
  const std::int64_t seq_len_;
  DataFeed feed_;
};

}  // namespace meshloom::train
