// SPDX-License-Identifier: Apache-2.0
// SteppedRun: a model on a mesh with its optimizer on this rank, driven by a client's verbs.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/train/loss_batch.h"
#include "daemon/train/run.h"
#include "v1/config.pb.h"
#include "v1/step.pb.h"

namespace meshloom::train {

/// micro_batch_size of a run that gives none: as many of the longest data as hold so many tokens.
inline constexpr std::int64_t kMicroBatchTokens = 8192;

struct SteppedRunOptions {
  std::filesystem::path data_dir;
  /// The absolute folder of the model that config.model.name names, if it names one.
  std::filesystem::path model_folder;
  /// What it begins with: a folder that save_state wrote, on any mesh. Empty: the model's values.
  std::filesystem::path state_folder;
  bool with_optimizer = true;  ///< of state_folder: also moments and step
  bool dropout = false;        ///< forward_backward draws the dropout of the model's config
};

/// Fills in every default of what a stepped run reads of a config (model, mesh, plan, optimizer,
/// training.seed, .seq_len: the longest datum, .micro_batch_size, and .max_norm: the grad_clip_norm
/// of steps that give none, default 0: sums have no scale to be clipped at) and checks it against
/// world_size. `model_folder` as in SteppedRunOptions. Sections that only a job reads (data,
/// lr_scheduler, validation, checkpoint, export, sample) and training.steps, .global_batch_size and
/// .peak_flops are refused by name if they are given. Throws as resolve_run_config.
v1::RunConfig resolve_stepped_config(const v1::RunConfig& given, int world_size,
                                     const std::filesystem::path& data_dir,
                                     const std::filesystem::path& model_folder,
                                     std::vector<std::string>* warnings = nullptr,
                                     int ranks_per_host = 0);

/// A sample of a run that is driven by verbs; all its tokens tell their log-probs.
class SteppedSample : public Sample {
 public:
  /// Optimizer steps behind the weights that the next advance() draws from.
  virtual std::int64_t step() const = 0;
  /// What SteppedRun::forward returns of a batch whose data all ranks have, under the weights that
  /// were drawn from. Throws FailedPrecondition (WEIGHTS_STALE) if these were the run's own and
  /// were overwritten since.
  virtual v1::LossOutput score(const v1::LossBatch&) = 0;
};

/// Verbs have equal arguments on every rank, but for a batch, of which rank 0 has all data and the
/// others have what they compute (rank_part). What all ranks throw alike leaves the run as it was
/// before, but where a verb says otherwise. InvalidArgument has the metadata "field", the path
/// inside the verb's message ("data[3].targets[17]").
class SteppedRun : public AnyRun {
 public:
  static std::unique_ptr<SteppedRun> create(const RankResources&, const v1::RunConfig& resolved,
                                            const SteppedRunOptions&);

  /// A verb has failed after it began to overwrite the weights: they are undefined on this rank,
  /// and the run is to be deleted.
  virtual bool weights_undefined() const = 0;

  /// What batches have to fit (check_loss_batch, before their data are cut over the ranks).
  virtual LossBatchLimits limits() const = 0;

  /// Adds the gradients of a batch that was checked to those since the last optim_step. Returns its
  /// outputs on rank 0, nothing on the others (metrics: LossMetrics). Throws NumericError
  /// (NON_FINITE_LOSS) naming datum and token. Whatever it throws poisons those gradients.
  virtual v1::LossOutput forward_backward(const v1::LossBatch&, const WholeBatch&) = 0;
  /// The same outputs, bit for bit, without gradients. `train`: with the dropout that the next
  /// forward_backward would draw.
  virtual v1::LossOutput forward(const v1::LossBatch&, const WholeBatch&, bool train) = 0;
  /// The gradients since the last optim_step are not to be applied: the next one fails, naming
  /// `cause`. The first cause counts.
  virtual void poison(const std::string& cause) = 0;
  /// Clips and updates, and zeroes the gradients. Throws InvalidArgument for values that the
  /// optimizer does not take, with the gradients left as they are; FailedPrecondition without
  /// gradients (NO_GRADIENTS), with poisoned ones (GRADIENTS_POISONED) and for a mean over no
  /// target (NO_TARGETS), and NumericError if loss or norm is NaN or infinite: parameters are then
  /// as before, gradients gone.
  virtual v1::OptimStepOutput optim_step(const v1::OptimStepParams&) = 0;

  /// Writes parameters, optimizer state, step and `user_metadata` to `folder`, complete or not at
  /// all; durable when it returns. Throws AlreadyExists if it is there. Gathered gradients are no
  /// part of it.
  virtual void save_state(const std::filesystem::path& folder,
                          const std::map<std::string, std::string>& user_metadata) = 0;
  /// Takes parameters (and moments and step, if `with_optimizer`; else these begin anew) from a
  /// folder that save_state wrote on any mesh. Gradients since the last optim_step are dropped.
  /// Throws NotFound and FailedPrecondition (CHECKPOINT_MISMATCH) before anything is written.
  virtual void load_state(const std::filesystem::path& folder, bool with_optimizer) = 0;

  /// Whole parameters by name, on rank 0. Throws NotFound naming one that there is not.
  virtual std::vector<v1::ParameterValue> get_parameters(const std::vector<std::string>& names) = 0;
  /// Replaces whole parameters; moments stay. All names, shapes, dtypes and sizes are checked
  /// before anything is written. Gradients since the last optim_step are dropped.
  virtual void set_parameters(const std::vector<v1::ParameterValue>& values) = 0;

  /// Keeps the weights as they are under a name; copied when they are about to be overwritten.
  /// Throws AlreadyExists.
  virtual void keep_snapshot(const std::string& name) = 0;
  /// Nothing for a name that is not there. Samples that draw from it go on.
  virtual void drop_snapshot(const std::string& name) = 0;

  /// As Run::begin_sample. Draws from the snapshot, or, where that is empty, from the run's weights
  /// as they are at each advance(). Throws FailedPrecondition (SNAPSHOT_STALE).
  virtual std::unique_ptr<SteppedSample> begin_sample(const std::vector<SampleStart>& sequences,
                                                      const std::string& snapshot) = 0;
  /// The same from the weights of a Hugging Face folder that export_hf wrote at `step`, which take
  /// the memory of a snapshot until the last sample from them ends. Throws, on all ranks alike,
  /// what refuses the folder, with the run as it was.
  virtual std::unique_ptr<SteppedSample> begin_sample_from(
      const std::vector<SampleStart>& sequences, const std::filesystem::path& folder,
      std::int64_t step) = 0;
};

}  // namespace meshloom::train
