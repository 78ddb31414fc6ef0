// SPDX-License-Identifier: Apache-2.0
// TrainRun: the implementation of Run on a mesh.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/train/checkpoint/checkpoint_reader.h"
#include "daemon/train/data/batch_loader.h"
#include "daemon/train/model_state.h"
#include "daemon/train/optim/lr_schedule.h"
#include "daemon/train/resolve.h"
#include "daemon/train/run.h"
#include "daemon/train/run_mesh.h"

namespace meshloom::train {

/// Adds the seconds of its life to a phase.
class PhaseTimer {
 public:
  PhaseTimer(std::map<std::string, double>& phases, const char* phase)
      : seconds_(phases[phase]), start_(std::chrono::steady_clock::now()) {}
  ~PhaseTimer() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

/// Every rank of the data group (dp x fsdp) computes its slice of each micro batch, together with
/// the ranks that share its samples (tp); gradients are summed while backward runs. The loss of a
/// label counts the same whichever rank and micro batch it is in: every gradient is scaled by
/// 1 / (labels of the whole global batch).
class TrainRun final : public Run {
 public:
  TrainRun(const RankResources& resources, const v1::RunConfig& config, const RunOptions& options);
  ~TrainRun() override;

  const v1::RunConfig& config() const override { return config_; }
  std::int64_t step() const override { return progress_.step; }
  const std::vector<std::string>& notes() const override { return notes_; }
  std::string plan_text() const override;
  PromptLimits prompt_limits() const override { return train::prompt_limits(model_config_); }

  void forward_backward() override;
  v1::StepMetrics optim_step() override;
  std::map<std::string, double> phase_seconds() const override { return phases_; }
  std::vector<LossSum> evaluate(std::int64_t first, std::int64_t batches) override;
  std::filesystem::path save_state() override;
  void export_hf(const std::filesystem::path& folder, const std::string& dtype) override;
  std::unique_ptr<Sample> begin_sample(const std::vector<SampleStart>& sequences) override;

 private:
  struct Progress {
    std::int64_t step = 0;
    std::int64_t data_position = 0;  ///< samples drawn
    std::int64_t tokens = 0;         ///< labels trained on
  };
  /// A forward_backward that optim_step has not used yet.
  struct PendingStep {
    double loss = 0.0;
    std::int64_t labels = 0;
    std::chrono::steady_clock::time_point start;
  };

  void restore_or_initialize();
  void resume(const FoundCheckpoint& found);
  void note_other_class(const ComputeClass& before);
  /// Compares the data with those of the checkpoint (null: of the submission).
  void check_data(const FoundCheckpoint* found);
  ComputeClass compute_class() const;
  CheckpointLocation checkpoint_location() const;

  std::vector<HostBatch> load_step(std::int64_t& global_labels);
  /// Throws where config.debug asks for it on this rank in this step.
  void fail_on_purpose() const;
  void run_micro_batch(const HostBatch& batch, std::int64_t global_labels, bool last);
  double evaluate_batch(const HostBatch& batch);
  void add_collectives(v1::StepMetrics& metrics);
  nn::ForwardOptions forward_options(const HostBatch& batch) const;
  void refuse_nonfinite(const PendingStep& pending, float norm);

  comm::ProcessGroup& world_;
  ExecutionContext context_;  ///< the rank's device and allocator with the run's seed
  v1::RunConfig config_;
  RunOptions options_;
  nn::ModelConfig model_config_;
  std::unique_ptr<RunMesh> mesh_;
  std::unique_ptr<ModelState> state_;
  std::vector<nn::ActivationCheckpoint> block_checkpoints_;
  LrSchedule schedule_;
  std::unique_ptr<BatchLoader> training_, validation_;
  v1::DataIdentity data_identity_;
  Progress progress_;
  std::optional<PendingStep> pending_;
  double local_loss_ = 0.0;       ///< this rank's part of the pending step's loss
  std::int64_t saved_step_ = -1;  ///< the step whose checkpoint is on disk
  GroupCounters counted_;         ///< collectives up to the last step's end
  std::vector<std::string> notes_;
  std::map<std::string, double> phases_;
};

}  // namespace meshloom::train
