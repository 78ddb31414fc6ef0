// SPDX-License-Identifier: Apache-2.0
// ModelRun: a model on a mesh with its optimizer, driven by verbs. It knows neither where batches
// come from nor what is done next.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/tensor/deferred_checks.h"
#include "daemon/train/data/batch_loader.h"
#include "daemon/train/loss/loss_batch.h"
#include "daemon/train/run/checkpoint_reader.h"
#include "daemon/train/run/checkpoint_writer.h"
#include "daemon/train/run/model_state.h"
#include "daemon/train/run/phase_timer.h"
#include "daemon/train/run/run.h"
#include "daemon/train/run/run_mesh.h"

namespace meshloom::train {

/// StepResult belongs to one optimizer step, and is the same on every rank.
struct StepResult {
  double loss = 0.0;  ///< of all its batches over all ranks
  float norm = 0.0f;  ///< of the gradients, before clipping
};

/// LossOfLogProbs has the loss of a micro batch from the log-probs of its labels, [B,T,K].
struct LossOfLogProbs {
  double loss = 0.0;
  std::vector<float> gradients;  ///< by each log-prob
};
using LossFunction =
    std::function<LossOfLogProbs(const TokenBatch&, std::span<const float> log_probs)>;

/// One forward_backward or forward computes this: this rank's micro batches, as many on every rank,
/// and equal on ranks that share samples.
struct BatchCall {
  std::vector<TokenBatch> micro_batches;
  /// Gradients and loss are multiplied by it. A job divides by the labels of the whole optimizer
  /// step over all ranks, so that a label counts the same whichever rank and micro batch it is in.
  float scale = 1.0f;
  bool dropout = false;  ///< drawn by (optimizer step, TokenBatch::first_sample)
  /// No other batch comes before optim_step: gradients are summed while backward runs. Else they
  /// are summed by optim_step. A step's numbers are the same within rounding.
  bool last = false;
  /// The host is given the log-probs of labels, for which the device is waited for in every micro
  /// batch; the caller has checked ids and labels. Without them nothing is waited for, and what ops
  /// find wrong in values is thrown by optim_step.
  bool log_probs = false;
  /// Asked with log_probs alone. Null: the sum of -log-prob, with log_probs times each label's
  /// weight, which is computed together with its gradient. Must not throw: other ranks would wait.
  LossFunction loss = {};
  /// Called on every rank before each micro batch; may throw what all ranks throw alike.
  std::function<void(std::size_t micro_batch)> before = {};
};

/// LogProbs has the log-probs of this rank's micro batches, [B,T,K] each; those of ranks that share
/// samples are equal. It has none where they were not asked for.
using LogProbs = std::vector<std::vector<float>>;

struct ForwardResults {
  LogProbs log_probs;
  /// Without log_probs: of this rank's share, so that summed over ranks it is that of the batch.
  /// The ranks that share samples leave it to one of them.
  double loss = 0.0;
};

/// Every rank of the mesh calls the same verbs in the same order. What a verb throws on one rank
/// alone is for the caller to bring to all (run_in_step).
class ModelRun {
 public:
  /// This rank's part of the model, whose values are undefined until initialize or load_state was
  /// called. No collectives. `config` is resolved; resources outlive the run. Throws
  /// InvalidArgument, on every rank alike, for a plan that does not fit the model.
  ModelRun(const RankResources& resources, const v1::RunConfig& config,
           const nn::ModelConfig& model, std::unique_ptr<RunMesh> mesh);

  const nn::ModelConfig& model_config() const { return model_config_; }
  RunMesh& mesh() { return *mesh_; }
  /// Returns how many optimizer steps are done, those before a loaded checkpoint included.
  std::int64_t step() const { return step_; }
  /// Returns what its results depend on beside the config.
  ComputeClass compute_class() const;
  /// Grows with every verb; the caller clears it.
  Phases& phases() { return phases_; }

  /// Sets the values that the model begins with: of the Hugging Face folder that the
  /// config's model names, else by position from the config's seed. Adds to `notes` what the user
  /// should know of that. `data_dir` and `model_folder` as RunFolders has them.
  void initialize(const std::filesystem::path& data_dir, const std::filesystem::path& model_folder,
                  base::Disk& disk, std::vector<std::string>* notes);
  /// Loads the state of a checkpoint that fits (resume_check.h). Without `with_optimizer` moments
  /// and step begin anew. Gradients are dropped.
  void load_state(const CheckpointReader& checkpoint, bool with_optimizer = true);
  /// Writes a checkpoint of this step. `manifest` has what the caller knows of the training (data
  /// position, tokens); what the model knows is filled in. Returns its folder.
  std::filesystem::path save_state(const CheckpointLocation& location, Manifest manifest,
                                   const std::vector<CarriedFile>& carried);
  /// Writes a checkpoint as save_state does, but at exactly `folder` (write_checkpoint_at).
  void save_state_at(const std::filesystem::path& folder, Manifest manifest,
                     const std::vector<CarriedFile>& carried);

  // --- Training
  /// Adds the gradients of a batch to those since the last optim_step. The log-probs have the bits
  /// that forward gives. Throws FailedPrecondition after a batch that was announced as the last.
  LogProbs forward_backward(const BatchCall& call);
  bool has_gradients() const { return pending_.has_value(); }
  /// Drops the gradients since the last optim_step, as if they had never been computed.
  void drop_gradients() {
    pending_.reset();
    phases_.clear();  // optim_step, which would have read them, may never come
  }
  /// Multiplies gradients and loss by `factor`, clips to the norm (0: not) and updates; the one
  /// place of a step where the device is waited for. Throws NumericError naming step and first
  /// parameter if loss or norm is NaN or infinite, and InvalidArgument on a rank whose batch had
  /// ids or labels that the model does not have: the parameters are then untouched, on all ranks,
  /// the gradients gone.
  StepResult optim_step(double lr, double max_norm, double factor = 1.0);
  /// Gives access for what is asked of the model or its optimizer between steps: values, whole
  /// parameters, exports, samples, a description.
  ModelState& state() { return *state_; }

  /// Waits for the device once, at the end, or with log_probs in every micro batch. A loss function
  /// is not asked, and weights count in no loss.
  ForwardResults forward(const BatchCall& call);

 private:
  /// forward_backward left this for optim_step.
  struct Pending {
    Tensor loss;  ///< float64 [1], over all ranks; NaN if a check of any rank failed
    std::vector<DeferredChecks> checks;  ///< of this rank's batches that were not checked before
    bool summed = false;                 ///< gradients are the global ones
  };

  /// The forward of a micro batch gives this to backward.
  struct ForwardResult {
    Tensor output;
    Tensor gradient;  ///< of output; undefined: 1
  };

  nn::ForwardOptions forward_options(std::int64_t first_sample, bool dropout) const;
  /// Runs forward and backward of micro batch `k`, which may have no rows. This rank's share of the
  /// loss is added to `loss` (float64 [1]).
  void run_micro_batch(const BatchCall& call, std::size_t k, const Tensor& loss,
                       std::vector<float>& log_probs);
  ForwardResult forward_micro_batch(const BatchCall& call, const TokenBatch& batch,
                                    const Tensor& loss, std::vector<float>& log_probs);
  /// Fills in what the model knows.
  void describe(Manifest& manifest) const;
  /// Throws the reason why a step changed nothing: its loss or norm is NaN or infinite.
  [[noreturn]] void refuse(const StepResult& result, const Pending& pending);

  comm::ProcessGroup& world_;
  OutputFiles* const shards_;  ///< as in RankResources
  ExecutionContext context_;   ///< the rank's device and allocator with the run's seed
  v1::RunConfig config_;
  nn::ModelConfig model_config_;
  std::unique_ptr<RunMesh> mesh_;
  std::unique_ptr<ModelState> state_;
  std::vector<nn::ActivationCheckpoint> block_checkpoints_;
  std::int64_t step_ = 0;
  std::optional<Pending> pending_;
  Phases phases_{context_};
};

}  // namespace meshloom::train
