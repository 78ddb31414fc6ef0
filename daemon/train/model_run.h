// SPDX-License-Identifier: Apache-2.0
// ModelRun: a model on a mesh with its optimizer, driven by verbs. It knows neither where batches
// come from nor what is done next.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/tensor/deferred_checks.h"
#include "daemon/train/checkpoint/checkpoint_reader.h"
#include "daemon/train/checkpoint/checkpoint_writer.h"
#include "daemon/train/data/batch_loader.h"
#include "daemon/train/model_state.h"
#include "daemon/train/phase_timer.h"
#include "daemon/train/run.h"
#include "daemon/train/run_mesh.h"

namespace meshloom::train {

/// What one forward_backward computes: this rank's micro batches, as many on every rank, and equal
/// on ranks that share samples.
struct StepBatch {
  std::vector<HostBatch> micro_batches;
  std::int64_t seq_len = 0;
  /// Losses and gradients are divided by this: the labels of the whole optimizer step over all
  /// ranks, so that a label counts the same whichever rank and micro batch it is in.
  std::int64_t labels = 0;
  /// No other batch comes before optim_step: gradients are summed while backward runs. Else they
  /// are summed by optim_step. A step's numbers are the same within rounding.
  bool last = false;
};

/// Of one optimizer step, the same on every rank.
struct StepResult {
  double loss = 0.0;  ///< of all its batches over all ranks
  float norm = 0.0f;  ///< of the gradients, before clipping
};

/// Every rank of the mesh calls the same verbs in the same order. What a verb throws on one rank
/// alone is for the caller to bring to all (run_in_step).
class ModelRun {
 public:
  /// This rank's part of the model, whose values are undefined until one of initialize, load_hf and
  /// load_state was called. No collectives. `config` is resolved; resources outlive the run. Throws
  /// InvalidArgument, on every rank alike, for a plan that does not fit the model.
  ModelRun(const RankResources& resources, const v1::RunConfig& config,
           const nn::ModelConfig& model, std::unique_ptr<RunMesh> mesh);

  const nn::ModelConfig& model_config() const { return model_config_; }
  RunMesh& mesh() { return *mesh_; }
  /// Optimizer steps done, those before a loaded checkpoint included.
  std::int64_t step() const { return step_; }
  /// How the ranks of the mesh hold each kind of parameter, a line each.
  std::string plan_text() const { return state_->description(); }
  /// Patterns of the plan that match nothing.
  const std::vector<std::string>& warnings() const { return state_->warnings(); }
  /// What its results depend on beside the config.
  ComputeClass compute_class() const;
  /// Grows with every verb; the caller clears it.
  PhaseSeconds& phases() { return phases_; }

  // --- Values: by position from `seed`; of a Hugging Face folder; of a checkpoint of any mesh.
  void initialize(std::uint64_t seed) { state_->initialize(seed); }
  void load_hf(const std::filesystem::path& folder) { state_->load_hf(folder); }
  void load_state(const FoundCheckpoint& found);
  /// Writes a checkpoint of this step. `manifest` has what the caller knows of the training (data
  /// position, tokens); what the model knows is filled in. Returns its folder.
  std::filesystem::path save_state(const CheckpointLocation& location, Manifest manifest);
  void export_hf(const std::filesystem::path& folder, DType dtype) {
    state_->export_hf(folder, dtype);
  }

  // --- Training
  /// Adds the gradients of a batch to those since the last optim_step. Waits for no value of the
  /// device. Throws FailedPrecondition after a batch that was announced as the last.
  void forward_backward(const StepBatch& batch);
  bool has_gradients() const { return pending_.has_value(); }
  /// Clips gradients to the norm (0: not) and updates; the one place of a step where the device is
  /// waited for. Throws NumericError naming step and first parameter if loss or norm is NaN or
  /// infinite, and InvalidArgument on a rank whose batch had ids or labels that the model does not
  /// have: the parameters are then untouched, on all ranks, the gradients gone.
  StepResult optim_step(double lr, double max_norm);

  /// The loss of this rank's share of a batch: summed over ranks it is that of the batch. The ranks
  /// that share samples leave it to one of them.
  LossSum forward(const HostBatch& batch, std::int64_t seq_len);
  std::unique_ptr<Sample> begin_sample(const std::vector<SampleStart>& sequences);

 private:
  /// What forward_backward left for optim_step.
  struct Pending {
    Tensor loss;  ///< float64 [1], over all ranks; NaN if a check of any rank failed
    std::vector<DeferredChecks> checks;  ///< of this rank's batches
    bool summed = false;                 ///< gradients are the global ones
  };

  nn::ForwardOptions forward_options(const HostBatch& batch) const;
  /// Adds this rank's share of the loss to `loss_sum` (float64 [1]).
  void run_micro_batch(const HostBatch& batch, const StepBatch& step, bool last,
                       const Tensor& loss_sum);
  /// Throws if config.debug asks for it on this rank in this step.
  void fail_on_purpose() const;
  /// Of a step that changed nothing because loss or norm is NaN or infinite: throws the reason.
  [[noreturn]] void refuse(const StepResult& result, const Pending& pending);

  comm::ProcessGroup& world_;
  ExecutionContext context_;  ///< the rank's device and allocator with the run's seed
  v1::RunConfig config_;
  nn::ModelConfig model_config_;
  std::unique_ptr<RunMesh> mesh_;
  std::unique_ptr<ModelState> state_;
  std::vector<nn::ActivationCheckpoint> block_checkpoints_;
  std::int64_t step_ = 0;
  std::optional<Pending> pending_;
  PhaseSeconds phases_;
};

}  // namespace meshloom::train
