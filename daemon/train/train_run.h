// SPDX-License-Identifier: Apache-2.0
// TrainRun: the run of a job on a rank.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/train/checkpoint/checkpoint_reader.h"
#include "daemon/train/data/data_feed.h"
#include "daemon/train/model_run.h"
#include "daemon/train/optim/lr_schedule.h"
#include "daemon/train/run.h"

namespace meshloom::train {

/// What of a job runs on a rank: it feeds a ModelRun with the job's data, schedule and evaluation,
/// by the same verbs that any other caller has. Every rank of the data group (dp x fsdp) computes
/// its slice of each micro batch, together with the ranks that share its samples (tp).
class TrainRun final : public Run {
 public:
  TrainRun(const RankResources& resources, const v1::RunConfig& config, const RunOptions& options);
  ~TrainRun() override;

  const v1::RunConfig& config() const override { return config_; }
  std::int64_t step() const override { return model_->step(); }
  const std::vector<std::string>& notes() const override { return notes_; }
  std::string plan_text() const override { return model_->plan_text(); }
  PromptLimits prompt_limits() const override {
    return train::prompt_limits(model_->model_config());
  }

  void forward_backward() override;
  v1::StepMetrics optim_step() override;
  void edit(const v1::JobSettings& settings) override;
  PhaseSeconds phase_seconds() const override { return model_->phases().seconds(); }
  std::vector<LossSum> evaluate(std::int64_t first, std::int64_t batches,
                                const std::string& set) override;
  std::filesystem::path save_state(const v1::ValidationProgress& progress) override;
  v1::ValidationProgress validation_progress() const override { return progress_; }
  void export_hf(const std::filesystem::path& folder, const std::string& dtype) override;
  std::unique_ptr<Sample> begin_sample(const std::vector<SampleStart>& sequences) override;

 private:
  /// The last forward_backward; model_ knows whether optim_step has used it.
  struct LastStep {
    std::int64_t tokens = 0;
    std::chrono::steady_clock::time_point start;
  };

  void restore_or_initialize();
  void resume(const FoundCheckpoint& found);
  void note_other_class(const ComputeClass& before);
  /// Another schedule than the checkpoint's, which a job gets with other steps too, changes the
  /// learning rate.
  void note_other_schedule(const Manifest& manifest);
  /// Compares the data with those of the checkpoint (null: of the submission).
  void check_data(const FoundCheckpoint* found);
  CheckpointLocation checkpoint_location() const;
  /// Of another job's checkpoint what holds for this one too.
  void take_over_progress(const Manifest& manifest);
  void add_collectives(v1::StepMetrics& metrics);

  comm::ProcessGroup& world_;
  const RankResources resources_;
  v1::RunConfig config_;
  RunOptions options_;
  /// Files that go along with checkpoints and exports.
  std::vector<CarriedFile> carried_;
  LrSchedule schedule_;
  std::unique_ptr<DataFeed> feed_;
  std::unique_ptr<ModelRun> model_;
  LastStep last_;
  std::int64_t saved_step_ = -1;     ///< the step whose checkpoint is on disk
  v1::ValidationProgress progress_;  ///< of the newest checkpoint
  GroupCounters counted_;            ///< collectives up to the last step's end
  std::vector<std::string> notes_;
};

}  // namespace meshloom::train
