// SPDX-License-Identifier: Apache-2.0
// Run: a model on a mesh with its optimizer on this rank, driven by the step verbs of a job or of a
// client.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/nn/models/model.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/config/sampling_params.h"
#include "daemon/train/data/batch_work.h"
#include "daemon/train/loss/loss_batch.h"
#include "daemon/train/run/run_options.h"
#include "daemon/train/run/run_values.h"
#include "daemon/train/run/sample.h"
#include "v1/config.pb.h"
#include "v1/step.pb.h"

namespace meshloom::train {

/// Every rank of the world calls the same verbs in the same order, with equal arguments but for a
/// batch, of which rank 0 has all data and the others have what they compute (rank_part). A verb
/// may throw on one rank alone; the caller brings that to all of them (run_in_step), as with
/// create(). What all ranks throw alike leaves the run as it was before, but where a verb says
/// otherwise. InvalidArgument has the metadata "field", the path inside the verb's message
/// ("data[3].targets[17]").
class Run {
 public:
  /// Builds model, optimizer and data from a resolved config.
  static std::unique_ptr<Run> create(const RankResources&, const v1::RunConfig& resolved,
                                     const RunOptions&);
  virtual ~Run() = default;

  /// Returns how many optimizer steps are done, also before this process (from the checkpoint).
  virtual std::int64_t step() const = 0;
  /// Returns things that the user should know, such as a fallback to an older checkpoint or a
  /// change of CPU class.
  virtual const std::vector<std::string>& notes() const = 0;
  /// Tells how the ranks of the mesh hold each kind of parameter, a line each; empty if it is not
  /// known.
  virtual std::string plan_text() const { return {}; }
  /// Returns the limits of what its model can continue.
  virtual PromptLimits prompt_limits() const { return {}; }
  /// Returns the limits that batches have to fit (check_loss_batch, before their data are sharded
  /// over the ranks).
  virtual LossBatchLimits limits() const = 0;
  /// Returns the numbers of tokens of config.data.path and of samples to train on; zeros without
  /// data of its own.
  virtual DataSize data_size() const { return {}; }
  /// Returns the flops of forward and backward; zeros: not known.
  virtual nn::ModelFlops flops() const { return {}; }
  /// Returns the progress of the checkpoint that a job began with.
  virtual JobProgress job_progress() const { return {}; }
  /// Tells whether a verb has failed after it began to overwrite the weights: they are undefined on
  /// this rank, and the run is to be deleted.
  virtual bool weights_undefined() const = 0;

  // --- Gradients and losses
  /// Adds the gradients of a batch that was checked to those since the last optim_step. Returns its
  /// outputs on rank 0, nothing on the others (metrics: LossMetrics). Throws NumericError
  /// (NON_FINITE_LOSS) naming datum and token, and Cancelled (VERB_STOPPED) where
  /// RunOptions::stopped says so. Whatever it throws poisons those gradients.
  virtual v1::LossOutput forward_backward(const v1::LossBatch&, const WholeBatch&) = 0;
  /// Adds, as for a LossBatch, the gradients of the run's own data, summed over ranks while
  /// backward runs: no other call comes before optim_step. Throws FailedPrecondition if there are
  /// gradients already, or no data (NO_DATA), and InvalidArgument if no label counts.
  virtual BatchWork forward_backward(const TrainingBatch&) = 0;
  /// Returns the outputs of forward_backward, bit for bit, without gradients. `train`: with the
  /// dropout that the next forward_backward would draw.
  virtual v1::LossOutput forward(const v1::LossBatch&, const WholeBatch&, bool train) = 0;
  /// Computes the losses of the batches, each summed over its labels; fewer if the data end. Throws
  /// FailedPrecondition if there are no such data.
  virtual std::vector<LossSum> forward(const ValidationBatches&) = 0;
  /// The gradients since the last optim_step are not to be applied: the next one fails, naming
  /// `cause`. The first cause counts.
  virtual void poison(const std::string& cause) = 0;

  /// Clips and updates, and zeroes the gradients. Throws InvalidArgument for values that the
  /// optimizer does not take, with the gradients left as they are; FailedPrecondition without
  /// gradients (NO_GRADIENTS), with poisoned ones (GRADIENTS_POISONED) and for a mean over no
  /// target (NO_TARGETS), and NumericError naming step and first parameter if loss or norm is NaN
  /// or infinite: parameters are then as before, gradients gone.
  virtual StepOutput optim_step(const v1::OptimStepParams&) = 0;

  // --- State
  /// Writes parameters, optimizer state, step and `user_metadata` to `folder`, complete or not at
  /// all; durable when it returns. Throws AlreadyExists if it is there. Gathered gradients are no
  /// part of it.
  virtual void save_state(const std::filesystem::path& folder,
                          const std::map<std::string, std::string>& user_metadata) = 0;
  /// Writes folders.checkpoints/step-N with `progress` in it (of a step that is saved already, the
  /// progress alone), and deletes what is neither one of the keep_latest_k latest (0: nothing is
  /// deleted) nor one of the progress's best. A failure (full disk) throws on every rank and leaves
  /// training state and older checkpoints as they were.
  virtual void save_checkpoint(const JobProgress& progress, int keep_latest_k) = 0;
  /// Takes parameters (and moments and step, if `with_optimizer`; else these begin anew) from a
  /// folder that save_state wrote on any mesh. Gradients since the last optim_step are dropped.
  /// Throws NotFound and FailedPrecondition (CHECKPOINT_MISMATCH) before anything is written.
  virtual void load_state(const std::filesystem::path& folder, bool with_optimizer) = 0;
  /// Writes a Hugging Face folder (rank 0), complete or not at all.
  virtual void export_hf(const std::filesystem::path& folder, const std::string& dtype) = 0;

  /// Returns whole parameters by name, on rank 0. Throws NotFound naming one that there is not.
  virtual std::vector<v1::ParameterValue> get_parameters(const std::vector<std::string>& names) = 0;
  /// Replaces whole parameters; moments stay. All names, shapes, dtypes and sizes are checked
  /// before anything is written. Gradients since the last optim_step are dropped.
  virtual void set_parameters(const std::vector<v1::ParameterValue>& values) = 0;

  // --- Samples
  /// Keeps the weights as they are under a name; copied when they are about to be overwritten.
  /// Throws AlreadyExists.
  virtual void keep_snapshot(const std::string& name) = 0;
  /// Drops a snapshot; nothing for a name that is not there. Samples that draw from it go on.
  virtual void drop_snapshot(const std::string& name) = 0;

  /// Draws nothing yet. Other verbs may come between what the sample draws; its advance() is a verb
  /// of its own. Draws from the snapshot, or, where that is empty, from the run's weights as they
  /// are at each advance(). Throws FailedPrecondition (SNAPSHOT_STALE).
  virtual std::unique_ptr<RunSample> begin_sample(const std::vector<SampleStart>& sequences,
                                                  const std::string& snapshot) = 0;
  /// Begins a sample as begin_sample does, but from the weights of a Hugging Face folder that
  /// export_hf wrote at `step`, which take the memory of a snapshot until the last sample from them
  /// ends. Throws, on all ranks alike, what refuses the folder, with the run as it was.
  virtual std::unique_ptr<RunSample> begin_sample_from(const std::vector<SampleStart>& sequences,
                                                       const std::filesystem::path& folder,
                                                       std::int64_t step) = 0;
};

}  // namespace meshloom::train
