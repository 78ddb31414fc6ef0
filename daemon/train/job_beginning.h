// SPDX-License-Identifier: Apache-2.0
// JobBeginning: what a job's run begins with: its newest checkpoint, another one, or the model's
// own values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/train/checkpoint/checkpoint_reader.h"
#include "daemon/train/model_run.h"
#include "daemon/train/run.h"

namespace meshloom::train {

/// Used once, when a run with data of its own is made. Everything that it is made with outlives it.
class JobBeginning {
 public:
  JobBeginning(const RankResources& resources, const v1::RunConfig& config,
               const RunOptions& options, ModelRun& model, const v1::DataIdentity& identity,
               std::vector<std::string>& notes)
      : world_(*resources.world),
        resources_(resources),
        config_(config),
        options_(options),
        model_(model),
        identity_(identity),
        notes_(notes) {}

  struct Begun {
    JobProgress progress;
    /// The step whose checkpoint lies in checkpoint_dir; -1: it did not begin with one of those.
    std::int64_t saved_step = -1;
  };
  /// Fills in the model. Every rank of the world calls it; what one throws all throw.
  Begun begin();

 private:
  /// The checkpoint to go on from, if there is one; `own`: it is one of the job's.
  std::optional<FoundCheckpoint> find(bool* own) const;
  void load(const FoundCheckpoint& found);
  void note_other_class(const ComputeClass& before);
  /// Another schedule than the checkpoint's, which a job gets with other steps too, changes the
  /// learning rate.
  void note_other_schedule(const Manifest& manifest);
  /// Compares the data with those of the checkpoint (null: of the submission).
  void check_data(const FoundCheckpoint* found);
  /// Of another job's checkpoint what holds for this one too.
  v1::ValidationProgress taken_over(const Manifest& manifest);

  comm::ProcessGroup& world_;
  const RankResources& resources_;
  const v1::RunConfig& config_;
  const RunOptions& options_;
  ModelRun& model_;
  const v1::DataIdentity& identity_;
  std::vector<std::string>& notes_;
};

/// Where a job's checkpoints are written and looked for.
CheckpointLocation checkpoint_location(const RankResources& resources, const RunOptions& options,
                                       int keep_latest_k);

}  // namespace meshloom::train
