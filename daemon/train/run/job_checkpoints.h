// SPDX-License-Identifier: Apache-2.0
// JobCheckpoints: what a job's run begins with, and the checkpoints that it writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/train/run/checkpoint_writer.h"
#include "daemon/train/run/model_run.h"
#include "daemon/train/run/run.h"

namespace meshloom::train {

/// Every rank of the world has one and calls the same methods. What it is made with outlives it.
class JobCheckpoints {
 public:
  JobCheckpoints(const RankResources& resources, const v1::RunConfig& config,
                 const RunOptions& options, const v1::DataIdentity& data)
      : resources_(resources), config_(config), options_(options), data_(data) {}

  /// Fills in the model: from the newest checkpoint, another one, or by its own values. Once,
  /// before the others.
  void begin(ModelRun& model, std::vector<std::string>& notes);
  /// Returns the progress of the checkpoint that it began with.
  const JobProgress& progress() const { return progress_; }
  /// Tells whether validations count every token of their data (Manifest::validates_all). Not those
  /// of a job whose checkpoints say that its losses so far are others.
  bool validates_all() const { return validates_all_; }
  /// Saves as Run::save_checkpoint does; rank 0 gives `carried`.
  void save(ModelRun& model, const JobProgress& progress, int keep_latest_k,
            const std::vector<CarriedFile>& carried);

 private:
  const RankResources& resources_;
  const v1::RunConfig& config_;
  const RunOptions& options_;
  const v1::DataIdentity& data_;
  JobProgress progress_;
  std::int64_t saved_step_ = -1;  ///< whose checkpoint is in folders.checkpoints
  bool validates_all_ = true;
  std::string saved_validation_;  ///< that checkpoint's progress, as text
};

}  // namespace meshloom::train
