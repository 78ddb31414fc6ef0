// SPDX-License-Identifier: Apache-2.0
// Run: a model on a mesh with its optimizer on this rank, driven by the step verbs of a job or of a
// client.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/disk.h"
#include "daemon/comm/process_group.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/train/core_times.h"
#include "daemon/train/data/batch_work.h"
#include "daemon/train/data/chat_samples.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/device_choice.h"
#include "daemon/train/loss_batch.h"
#include "daemon/train/sampling_params.h"
#include "kernels/base/error.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"
#include "v1/step.pb.h"

namespace meshloom::train {

class FileSystem;
class OutputFiles;

/// What a rank brings to its runs; outlives them.
struct RankResources {
  ExecutionContext* context = nullptr;
  comm::ProcessGroup* world = nullptr;  ///< all ranks; a group of size 1 if there is only one
  /// Of a rank whose host does not have rank 0's files: what they are read from, and what its
  /// shards of checkpoints go to. Null: its host's own disk.
  base::Disk* disk = nullptr;
  OutputFiles* shards = nullptr;

  base::Disk& files() const { return disk ? *disk : base::own_disk(); }
};

struct RunOptions {
  std::filesystem::path data_dir;
  /// Absolute folder of the model that config.model.name names; empty if it names none.
  std::filesystem::path model_folder;

  // --- Of what a client drives
  /// What it begins with: a folder that save_state wrote, on any mesh. Empty: the model's values.
  std::filesystem::path state_folder = {};
  bool with_optimizer = true;  ///< of state_folder: also moments and step
  bool dropout = false;        ///< batches that are sent or named draw the model's dropout
  /// Rank 0: whether the batch that is being computed is to be left, which all ranks then do
  /// between two micro batches. `last`: it is asked no more, what comes later comes too late. May
  /// be empty.
  std::function<bool(bool last)> stopped = {};

  // --- Of a job, and of what is evaluated
  /// It has data of its own, config.data and config.validation, in batches of
  /// config.training.global_batch_size samples.
  bool with_data = false;
  /// The job's checkpoints, of which the newest is loaded. Empty: none.
  std::filesystem::path checkpoint_dir = {};
  /// A checkpoint to begin with if checkpoint_dir has none.
  std::filesystem::path resume_from = {};
  /// If resume_from is damaged, an older one beside it is taken.
  bool resume_older = false;
  /// The checkpoint before a damaged newest one is taken.
  bool allow_fallback = false;
  /// The tokens of the config's text, if it has some that is tokenized.
  TokenizedText text = {};
  /// Folder of the tokenizer that goes along with checkpoints and exports; empty: the model's.
  std::filesystem::path tokenizer_folder = {};
  /// What checkpoints are written through; null: the operating system's.
  FileSystem* file_system = nullptr;
};

/// Fills in every default and checks everything that can be checked without other ranks: sizes,
/// files, dtype, mesh against world_size, plans that are not offered. Throws InvalidArgument (or
/// Unimplemented, NotFound) whose metadata has "field", the path of the wrong field
/// ("run.training.steps"). What is no error but may be a mistake, such as a pattern of
/// run.plan.styles that matches no module, is added to `warnings`. `model_folder` here and below:
/// as in RunOptions. `ranks_per_host` decides with the sizes what
/// run.plan.context_parallel.rotate: auto becomes; 0: all ranks are on one host. `named_tokenizer`
/// is the absolute folder of the model that run.data.tokenizer names as "models/NAME". `devices`:
/// what run.device may name; a device that is not there is NeedsOtherDevices.
v1::RunConfig resolve_run_config(const v1::RunConfig&, int world_size,
                                 const std::filesystem::path& data_dir,
                                 std::vector<std::string>* warnings = nullptr,
                                 const std::filesystem::path& model_folder = {},
                                 int ranks_per_host = 0,
                                 const std::filesystem::path& named_tokenizer = {},
                                 const WorldDevices& devices = {});

/// What a config asks for does not fit the ranks that there are.
class NeedsOtherRanks : public FailedPrecondition {
 public:
  NeedsOtherRanks(const std::string& message, Metadata metadata)
      : FailedPrecondition(message, "NEEDS_OTHER_RANKS", std::move(metadata)) {}
};

/// A resolved config for another number of ranks: mesh, plan and micro batch are resolved again
/// from what the user gave; everything else stays, the dtype too. So does the device, unless the
/// user left it open and a rank does not have it. `resolved` itself if its mesh has world_size
/// ranks and these have its device. Throws NeedsOtherRanks and NeedsOtherDevices if what was given
/// does not fit the ranks.
v1::RunConfig refit_run_config(const v1::RunConfig& given, const v1::RunConfig& resolved,
                               int world_size, const std::filesystem::path& data_dir,
                               const std::filesystem::path& model_folder = {},
                               int ranks_per_host = 0,
                               const std::filesystem::path& named_tokenizer = {},
                               const WorldDevices& devices = {});

/// Prepares a resolved config to go on from the checkpoint in `folder`: if `given` left the
/// dtype open, it becomes the checkpoint's, and so does the way in which keys travel between as
/// many ranks of cp, and data.add_special_tokens of a checkpoint that does not know it, so that a
/// job goes on in the numbers that it began with. Throws
/// InvalidArgument with the field run.checkpoint.resume_from if a run of the config cannot go on
/// from it, and with run.training.steps if it would have nothing left to do.
void settle_resume_from(const v1::RunConfig& given, v1::RunConfig* resolved,
                        const std::filesystem::path& folder, const std::filesystem::path& data_dir,
                        const std::filesystem::path& model_folder = {},
                        const std::filesystem::path& named_tokenizer = {});

/// The loss of a batch.
struct LossSum {
  double loss = 0.0;    ///< summed over its labels
  double labels = 0.0;  ///< that count
  double bytes = 0.0;   ///< of text that these stand for; 0: not known
  double tokens = 0.0;  ///< that were computed: all but padding
};

/// Throws InvalidArgument if no label counts.
double mean_loss(std::span<const LossSum> batches);
/// The loss in bits by byte of text; nothing where the bytes are not known.
std::optional<double> bits_per_byte(std::span<const LossSum> batches);

/// What a sequence of a sample begins with. The prompt is one that the model can continue
/// (prompt_tokens).
struct SampleStart {
  std::vector<std::int64_t> prompt;
  v1::SamplingParams params;
  /// Tokens at the end of the prompt that another sample of the same seed has drawn.
  std::uint64_t drawn_before = 0;
  bool log_probs = false;                    ///< its tokens tell theirs
  std::vector<std::int64_t> turn_ends = {};  ///< of an answer in a conversation (ChatPrompt)
  // What ends it, as set_ends makes it.
  v1::SampleStop stop = {};                   ///< strings for models of 256 bytes alone
  std::vector<std::int64_t> end_tokens = {};  ///< beside those of the model's config
};

/// One token of a sample.
struct SampledToken {
  std::size_t sequence = 0;  ///< index in what the sample began with
  std::int64_t id = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;  ///< of its sequence's last
  /// Under the model's own softmax over all tokens, and under that at the temperature it was drawn
  /// with (equal at 1; 0 at temperature 0). Both 0 unless the sequence began with log_probs.
  float log_prob = 0.0f, tempered_log_prob = 0.0f;

  bool last() const { return finish != v1::FINISH_REASON_UNSPECIFIED; }
};

/// One or several sequences that are drawn bit by bit, each as it would be alone. Ends before the
/// run or Sampler that it came from.
class Sample {
 public:
  virtual ~Sample() = default;
  /// Draws for as long as `budget`, at least one pass of the model. Returns the tokens on rank 0,
  /// those of a sequence in their order; nothing on others and once all are drawn.
  virtual std::vector<SampledToken> advance(std::chrono::milliseconds budget) = 0;
  /// Nothing more is drawn of these sequences, by index, some of which may have ended before.
  virtual void end_sequences(const std::vector<std::size_t>& sequences) = 0;
  /// Rank 0: no token is left to draw.
  virtual bool done() const = 0;
};

/// A sample of a run.
class RunSample : public Sample {
 public:
  /// Optimizer steps behind the weights that the next advance() draws from.
  virtual std::int64_t step() const = 0;
  /// What Run::forward returns of a batch whose data all ranks have, under the weights that were
  /// drawn from. Throws FailedPrecondition (WEIGHTS_STALE) if these were the run's own and were
  /// overwritten since.
  virtual v1::LossOutput score(const v1::LossBatch&) = 0;
};

/// The global batch of a run's own data that begins at a place of the training (BatchLoader), with
/// all gradients of an optimizer step: the mean over its labels.
struct TrainingBatch {
  std::int64_t first_sample = 0;
};

/// Global batches of one of config.validation.sets, or (empty) of the validation data of
/// config.data: always the same ones.
struct ValidationBatches {
  std::string set = {};
  std::int64_t first = 0, count = 1;
};

/// What an optimizer step did and cost on this rank.
struct StepOutput {
  v1::OptimStepOutput values;
  double step_seconds = 0.0;  ///< since the first forward_backward of the step began
  /// Of this rank's threads in these; of most short steps nothing is known.
  std::optional<CoreTimes> core_times = std::nullopt;
  std::map<std::string, double> phase_seconds;  ///< data, forward, backward, reduce, optimizer, ...
  std::vector<v1::CollectiveMetrics> collectives;  ///< since the step before
};

struct DataSize {
  std::int64_t tokens = 0, samples = 0;
  std::optional<ChatCuts> chat = std::nullopt;  ///< of the samples, where they are conversations
};

/// What of a job is in its checkpoints beside weights and optimizer.
struct JobProgress {
  std::int64_t data_position = 0;  ///< samples drawn
  std::int64_t tokens = 0;         ///< trained on
  v1::ValidationProgress validation = {};
  std::optional<v1::RunConfig> edited_config = {};  ///< of a job that was edited
};

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

  /// Optimizer steps done, also before this process (from the checkpoint).
  virtual std::int64_t step() const = 0;
  /// Things the user should know, such as a fallback to an older checkpoint or a change of CPU
  /// class.
  virtual const std::vector<std::string>& notes() const = 0;
  /// How the ranks of the mesh hold each kind of parameter, a line each; empty if it is not
  /// known.
  virtual std::string plan_text() const { return {}; }
  /// What its model can continue.
  virtual PromptLimits prompt_limits() const { return {}; }
  /// What batches have to fit (check_loss_batch, before their data are sharded over the ranks).
  virtual LossBatchLimits limits() const = 0;
  /// Tokens of config.data.path and samples to train on; zeros without data of its own.
  virtual DataSize data_size() const { return {}; }
  /// Forward and backward; zeros: not known.
  virtual nn::ModelFlops flops() const { return {}; }
  /// That of the checkpoint that a job began with.
  virtual JobProgress job_progress() const { return {}; }
  /// A verb has failed after it began to overwrite the weights: they are undefined on this rank,
  /// and the run is to be deleted.
  virtual bool weights_undefined() const = 0;

  // --- Gradients and losses
  /// Adds the gradients of a batch that was checked to those since the last optim_step. Returns its
  /// outputs on rank 0, nothing on the others (metrics: LossMetrics). Throws NumericError
  /// (NON_FINITE_LOSS) naming datum and token, and Cancelled (VERB_STOPPED) where
  /// RunOptions::stopped says so. Whatever it throws poisons those gradients.
  virtual v1::LossOutput forward_backward(const v1::LossBatch&, const WholeBatch&) = 0;
  /// The same of the run's own data, summed over ranks while backward runs: no other call comes
  /// before optim_step. Throws FailedPrecondition if there are gradients already, or no data
  /// (NO_DATA), and InvalidArgument if no label counts.
  virtual BatchWork forward_backward(const TrainingBatch&) = 0;
  /// The same outputs, bit for bit, without gradients. `train`: with the dropout that the next
  /// forward_backward would draw.
  virtual v1::LossOutput forward(const v1::LossBatch&, const WholeBatch&, bool train) = 0;
  /// Losses of the batches, each summed over its labels; fewer if the data end. Throws
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
  /// Writes checkpoint_dir/step-N with `progress` in it (of a step that is saved already, the
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

  /// Whole parameters by name, on rank 0. Throws NotFound naming one that there is not.
  virtual std::vector<v1::ParameterValue> get_parameters(const std::vector<std::string>& names) = 0;
  /// Replaces whole parameters; moments stay. All names, shapes, dtypes and sizes are checked
  /// before anything is written. Gradients since the last optim_step are dropped.
  virtual void set_parameters(const std::vector<v1::ParameterValue>& values) = 0;

  // --- Samples
  /// Keeps the weights as they are under a name; copied when they are about to be overwritten.
  /// Throws AlreadyExists.
  virtual void keep_snapshot(const std::string& name) = 0;
  /// Nothing for a name that is not there. Samples that draw from it go on.
  virtual void drop_snapshot(const std::string& name) = 0;

  /// Draws nothing yet. Other verbs may come between what the sample draws; its advance() is a verb
  /// of its own. Draws from the snapshot, or, where that is empty, from the run's weights as they
  /// are at each advance(). Throws FailedPrecondition (SNAPSHOT_STALE).
  virtual std::unique_ptr<RunSample> begin_sample(const std::vector<SampleStart>& sequences,
                                                  const std::string& snapshot) = 0;
  /// The same from the weights of a Hugging Face folder that export_hf wrote at `step`, which take
  /// the memory of a snapshot until the last sample from them ends. Throws, on all ranks alike,
  /// what refuses the folder, with the run as it was.
  virtual std::unique_ptr<RunSample> begin_sample_from(const std::vector<SampleStart>& sequences,
                                                       const std::filesystem::path& folder,
                                                       std::int64_t step) = 0;
};

/// A model for generation only: from a Hugging Face folder or a checkpoint folder. No collectives.
/// Used by one thread at a time.
class Sampler {
 public:
  static std::unique_ptr<Sampler> load(const ExecutionContext::Options&,
                                       const std::filesystem::path& folder);
  /// What the weights of load(folder) take, from the folder's config. Throws as load does if
  /// there is none.
  static std::int64_t weight_bytes(const std::filesystem::path& folder);
  virtual ~Sampler() = default;
  /// Optimizer steps behind its weights; 0: not known (a Hugging Face folder).
  virtual std::int64_t step() const = 0;
  virtual PromptLimits prompt_limits() const = 0;
  virtual std::unique_ptr<Sample> begin_sample(const std::vector<SampleStart>& sequences) = 0;
};

}  // namespace meshloom::train
