// SPDX-License-Identifier: Apache-2.0
// Run: a model on a mesh with its optimizer and data on this rank, driven by step verbs.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/base/disk.h"
#include "daemon/comm/process_group.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/train/data/text_data.h"
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
  /// The job's checkpoints, of which the newest is loaded. Empty: none.
  std::filesystem::path checkpoint_dir;
  /// A checkpoint to begin with if checkpoint_dir has none.
  std::filesystem::path resume_from;
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
/// is the absolute folder of the model that run.data.tokenizer names as "models/NAME".
v1::RunConfig resolve_run_config(const v1::RunConfig&, int world_size,
                                 const std::filesystem::path& data_dir,
                                 std::vector<std::string>* warnings = nullptr,
                                 const std::filesystem::path& model_folder = {},
                                 int ranks_per_host = 0,
                                 const std::filesystem::path& named_tokenizer = {});

/// What a config asks for does not fit the ranks that there are.
class NeedsOtherRanks : public FailedPrecondition {
 public:
  NeedsOtherRanks(const std::string& message, Metadata metadata)
      : FailedPrecondition(message, "NEEDS_OTHER_RANKS", std::move(metadata)) {}
};

/// A resolved config for another number of ranks: mesh, plan and micro batch are resolved again
/// from what the user gave; everything else stays, the dtype too. `resolved` itself if its mesh
/// has world_size ranks. Throws NeedsOtherRanks if what was given does not fit so many ranks.
v1::RunConfig refit_run_config(const v1::RunConfig& given, const v1::RunConfig& resolved,
                               int world_size, const std::filesystem::path& data_dir,
                               const std::filesystem::path& model_folder = {},
                               int ranks_per_host = 0,
                               const std::filesystem::path& named_tokenizer = {});

/// Prepares a resolved config to go on from the checkpoint in `folder`: if `given` left the
/// dtype open, it becomes the checkpoint's, and so does the way in which keys travel between as
/// many ranks of cp, so that a job goes on in the numbers that it began with. Throws
/// InvalidArgument with the field run.checkpoint.resume_from if a run of the config cannot go on
/// from it, and with run.training.steps if it would have nothing left to do.
void settle_resume_from(const v1::RunConfig& given, v1::RunConfig* resolved,
                        const std::filesystem::path& folder, const std::filesystem::path& data_dir,
                        const std::filesystem::path& model_folder = {});

/// The loss of a batch.
struct LossSum {
  double loss = 0.0;    ///< summed over its labels
  double labels = 0.0;  ///< that count
};

/// Throws InvalidArgument if no label counts.
double mean_loss(std::span<const LossSum> batches);

/// What a sequence of a sample begins with. The prompt is one that the model can continue
/// (prompt_tokens).
struct SampleStart {
  std::vector<std::int64_t> prompt;
  v1::SamplingParams params;
  /// Tokens at the end of the prompt that another sample of the same seed has drawn.
  std::uint64_t drawn_before = 0;
  bool log_probs = false;    ///< its tokens tell theirs
  v1::SampleStop stop = {};  ///< strings for models of 256 bytes alone (stop_by_tokens)
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

/// What a job's run (Run) and one that a client drives (SteppedRun) have in common: a model on a
/// mesh. Every rank of the world calls the same verbs in the same order. A verb may throw on one
/// rank alone; the caller brings that to all of them (run_in_step), as with create().
class AnyRun {
 public:
  virtual ~AnyRun() = default;

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
  /// Writes a Hugging Face folder (rank 0), complete or not at all.
  virtual void export_hf(const std::filesystem::path& folder, const std::string& dtype) = 0;
};

class Run : public AnyRun {
 public:
  /// Builds model, optimizer and data from a resolved config.
  static std::unique_ptr<Run> create(const RankResources&, const v1::RunConfig& resolved,
                                     const RunOptions&);

  virtual const v1::RunConfig& config() const = 0;

  /// Gradients of the next global batch (all its micro batches), reduced over ranks.
  virtual void forward_backward() = 0;
  /// Clips and updates. Returns the step's metrics, the same on every rank. Throws NumericError
  /// naming step and first parameter if loss or gradient norm is NaN or infinite; the parameters
  /// are then untouched.
  virtual v1::StepMetrics optim_step() = 0;
  /// Steps behind this one go by other settings of a job, which are resolved.
  virtual void edit(const v1::JobSettings& settings) = 0;
  /// Seconds of the last step by phase: data, forward, backward, reduce, optimizer, checkpoint.
  virtual std::map<std::string, double> phase_seconds() const = 0;
  /// Validation losses of `batches` global batches from `first` on, always the same ones, each
  /// summed over its labels; fewer if the data end. `set` is one of config().validation().sets(),
  /// or empty for the validation data of config().data().
  virtual std::vector<LossSum> evaluate(std::int64_t first, std::int64_t batches,
                                        const std::string& set = {}) = 0;
  /// Writes checkpoint_dir/step-N with `progress` in it (of a step that is saved already, the
  /// progress alone), and deletes what is neither one of the keep_latest_k latest nor one of the
  /// progress's best. A failure (full disk) throws on every rank and leaves training state and
  /// older checkpoints as they were. Returns the folder.
  virtual std::filesystem::path save_state(const v1::ValidationProgress& progress = {}) = 0;
  /// That of the checkpoint that the run began with.
  virtual v1::ValidationProgress validation_progress() const { return {}; }
  /// Draws nothing yet. Other verbs may come between what the sample draws; its advance() is a verb
  /// of its own.
  virtual std::unique_ptr<Sample> begin_sample(const std::vector<SampleStart>& sequences) = 0;
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
