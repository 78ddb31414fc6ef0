// SPDX-License-Identifier: Apache-2.0
// RunClient: the verbs of the ranks as methods, for jobs, runs of clients and samples. Commands are
// built here only.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/control/ranks/executor.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/loss/loss_batch.h"
#include "daemon/train/run/run.h"
#include "planner/mesh_layout.h"

namespace meshloom::control {

/// What a verb will have returned once every rank has answered.
template <typename Result>
class Answer {
 public:
  /// Waits. Throws the error of the lowest rank that failed, or the fatal one (Executor::wait).
  Result get() const { return take_(executor_->wait(ticket_)); }
  /// Of a loss of a batch: the ranks are to leave it between two micro batches, and get() throws
  /// Cancelled (VERB_STOPPED). False where it comes too late for that.
  bool request_stop() const { return executor_->request_stop(ticket_); }

 private:
  friend class RunClient;
  using Take = Result (*)(v1::RankResult);
  Answer(Executor& executor, Executor::Ticket ticket, Take take)
      : executor_(&executor), ticket_(std::move(ticket)), take_(take) {}

  Executor* executor_;
  Executor::Ticket ticket_;
  Take take_;
};

/// The verbs of one run. Each one gives the ranks a command and returns without waiting for them;
/// what a full message or a stopping daemon refuses is thrown at once (Executor::submit). Any
/// thread may call any method.
class RunClient {
 public:
  /// `run` is empty for samples that are drawn from a source of rank 0 and not from a run.
  RunClient(Executor& executor, std::string run) : executor_(executor), run_(std::move(run)) {}

  /// Makes the run on every rank. The field `run` of the command is filled in.
  Answer<v1::CreateRunResult> create(v1::CreateRunCommand command) const;
  Answer<void> export_hf(const std::filesystem::path& folder, const std::string& dtype) const;
  Answer<void> remove() const;

  // --- Losses and gradients: of a run's own data, or of a batch
  struct Step {
    Answer<v1::DataLoss> forward_backward;
    Answer<v1::ApplyGradientsResult> optim_step;
  };
  /// One optimizer step on a batch of the run's own data. No other command comes between gradients
  /// and update: a sample there would see weights whose gradients exist already.
  Step step(const train::TrainingBatch& batch, const v1::OptimStepParams& params) const;
  /// Losses of batches of the run's own data.
  Answer<v1::DataLoss> loss(const train::ValidationBatches& batches) const;
  /// What the batches of a run are checked against and sharded by.
  struct BatchRules {
    train::LossBatchLimits limits;
    planner::MeshLayout mesh;
  };
  /// Rank 0 gets the whole batch, every other rank the data that it computes. Throws as
  /// check_loss_batch: the ranks have then heard nothing.
  Answer<v1::LossOutput> loss(v1::LossCommand command, const BatchRules& rules) const;
  Answer<void> poison(const std::string& cause) const;
  Answer<v1::ApplyGradientsResult> apply_gradients(const v1::OptimStepParams& params) const;

  // --- State. Messages are taken as they are; their field `run` is filled in.
  Answer<v1::WriteStateResult> write_state(v1::WriteStateCommand command) const;
  Answer<void> load_state(const std::filesystem::path& folder, bool without_optimizer) const;
  Answer<v1::ParametersOutput> get_parameters(v1::GetParametersCommand command) const;
  Answer<void> set_parameters(v1::SetParametersCommand command) const;

  Answer<void> keep_snapshot(const std::string& name) const;
  Answer<void> drop_snapshot(const std::string& name) const;

  /// What a sample is drawn from, beside the run.
  struct SampleOrigin {
    std::string source;    ///< if there is no run
    std::string snapshot;  ///< of the run; empty: its weights as they are
    /// Of a snapshot on disk: the Hugging Face folder that the run has written, at that step.
    std::filesystem::path weights_folder = {};
    std::int64_t weights_step = 0;
  };
  /// Begins a sample, which draws nothing until it is advanced. `sample` is a number that no other
  /// sample has.
  Answer<void> begin_sample(std::int64_t sample, const SampleOrigin& origin,
                            const std::vector<train::SampleStart>& sequences) const;
  /// `ended`: sequences of which nothing more is to be drawn; they may be named again.
  Answer<v1::AdvanceSampleResult> advance_sample(std::int64_t sample,
                                                 std::chrono::milliseconds budget,
                                                 const std::vector<int>& ended = {}) const;
  /// Of a run: Forward under the weights that the sample draws from.
  Answer<v1::LossOutput> score_sample(std::int64_t sample, v1::LossBatch batch) const;
  Answer<void> end_sample(std::int64_t sample) const;

 private:
  Answer<void> submit(v1::RankCommand command) const;

  Executor& executor_;
  std::string run_;
};

}  // namespace meshloom::control
