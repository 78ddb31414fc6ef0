// SPDX-License-Identifier: Apache-2.0
// RankRun: the Run of a rank, on the training engine.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/train/config/sample_start.h"
#include "daemon/train/data/data_feed.h"
#include "daemon/train/run/core_times.h"
#include "daemon/train/run/gradient_window.h"
#include "daemon/train/run/job_checkpoints.h"
#include "daemon/train/run/model_run.h"
#include "daemon/train/run/reference_data.h"
#include "daemon/train/run/run.h"
#include "daemon/train/run/weight_snapshots.h"

namespace meshloom::train {

/// RankRun is a ModelRun with what verbs need around it: the window of gradients and weights to
/// draw from; of a job also its data and checkpoints. Every rank of the data group (dp x fsdp)
/// computes its samples of each micro batch, together with the ranks that share its samples (cp x
/// tp).
class RankRun final : public Run {
 public:
  RankRun(const RankResources& resources, const v1::RunConfig& config, const RunOptions& options);
  ~RankRun() override;

  std::int64_t step() const override { return model_->step(); }
  const std::vector<std::string>& notes() const override { return notes_; }
  std::string plan_text() const override { return model_->state().description(); }
  PromptLimits prompt_limits() const override;
  LossBatchLimits limits() const override;
  nn::ModelFlops flops() const override;
  DataSize data_size() const override;
  JobProgress job_progress() const override;
  bool weights_undefined() const override { return undefined_; }

  v1::LossOutput forward_backward(const v1::LossBatch& batch, const WholeBatch& whole) override;
  BatchWork forward_backward(const TrainingBatch& batch) override;
  v1::LossOutput forward(const v1::LossBatch& batch, const WholeBatch& whole, bool train) override;
  std::vector<LossSum> forward(const ValidationBatches& batches) override;
  void poison(const std::string& cause) override { window_.poison(cause); }
  StepOutput optim_step(const v1::OptimStepParams& params) override;

  void save_state(const std::filesystem::path& folder,
                  const std::map<std::string, std::string>& user_metadata) override;
  void save_checkpoint(const JobProgress& progress, int keep_latest_k) override;
  void load_state(const std::filesystem::path& folder, bool with_optimizer) override;
  void export_hf(const std::filesystem::path& folder, const std::string& dtype) override;
  std::vector<v1::ParameterValue> get_parameters(const std::vector<std::string>& names) override;
  void set_parameters(const std::vector<v1::ParameterValue>& values) override;

  void keep_snapshot(const std::string& name) override;
  void drop_snapshot(const std::string& name) override { snapshots_->drop(name); }
  std::unique_ptr<RunSample> begin_sample(const std::vector<SampleStart>& sequences,
                                          const std::string& snapshot) override;
  std::unique_ptr<RunSample> begin_sample_from(const std::vector<SampleStart>& sequences,
                                               const std::filesystem::path& folder,
                                               std::int64_t step) override;

 private:
  class OwnSample;

  void open(const RankResources& resources, const nn::ModelConfig& model,
            std::unique_ptr<RunMesh> mesh);
  void begin_job();
  /// Throws if the run was made without data of its own.
  const DataFeed& own_data(const char* verb) const;
  /// Is called before the gradients of a call are computed: its step begins, if no other call has
  /// begun it.
  void begin_gradients();
  /// Returns, at the end of a step, what it took of cores; nothing for one at whose beginning none
  /// were read.
  std::optional<CoreTimes> core_times_of_step();
  std::vector<v1::CollectiveMetrics> collectives_of_step();
  /// The weights are about to be overwritten. What fails on a rank is thrown by all, before.
  void before_write();
  v1::LossOutput call(const v1::LossBatch& batch, const WholeBatch& whole, bool dropout,
                      bool backward);
  v1::LossOutput run_call(const v1::LossBatch& batch, const WholeBatch& whole, bool dropout,
                          bool backward);

  comm::ProcessGroup& world_;
  const RankResources resources_;
  const v1::RunConfig config_;
  const RunOptions options_;
  /// Files that go along with checkpoints and exports, on rank 0.
  std::vector<CarriedFile> carried_;
  std::unique_ptr<DataFeed> data_;               ///< null without data of its own
  std::unique_ptr<JobCheckpoints> checkpoints_;  ///< if data_
  std::unique_ptr<ModelRun> model_;
  std::unique_ptr<ReferenceData> references_;
  std::unique_ptr<WeightSnapshots> snapshots_;
  GradientWindow window_;
  std::chrono::steady_clock::time_point step_begin_;  ///< of the step that window_ belongs to
  std::optional<CoreTimes> core_times_begin_;         ///< of this process then, if they were read
  std::chrono::steady_clock::time_point core_times_read_;  ///< when they were read last
  GroupCounters counted_;   ///< collectives up to the last step's end
  bool undefined_ = false;  ///< the weights
  std::vector<std::string> notes_;
};

}  // namespace meshloom::train
