// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/stepped_run.h"

#include <chrono>
#include <optional>

#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/checkpoint/checkpoint_reader.h"
#include "daemon/train/dtype_choice.h"
#include "daemon/train/gradient_window.h"
#include "daemon/train/loss_outputs.h"
#include "daemon/train/model_run.h"
#include "daemon/train/model_source.h"
#include "daemon/train/optim/step_values.h"
#include "daemon/train/paths.h"
#include "daemon/train/reference_data.h"
#include "daemon/train/replica_check.h"
#include "daemon/train/resolve_plan.h"
#include "daemon/train/resume_check.h"
#include "daemon/train/status_agreement.h"
#include "daemon/train/weight_snapshots.h"
#include "daemon/train/whole_parameters.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

class ModelSteppedRun final : public SteppedRun {
 public:
  ModelSteppedRun(const RankResources& resources, const v1::RunConfig& config,
                  const SteppedRunOptions& options)
      : world_(*resources.world), disk_(resources.files()), config_(config), options_(options) {
    check_same_text(world_, "the resolved config", to_json_text(config_));
    auto mesh = std::make_unique<RunMesh>(world_, mesh_layout(config_.mesh()));
    run_agreed(world_, [&] {
      const nn::ModelConfig model =
          load_model_config(config_.model(), options_.data_dir, options_.model_folder, disk_);
      if (world_.rank() == 0)
        carried_ =
            read_carried_files(text::carried_files(source_folder(config_.model(), options_.data_dir,
                                                                 options_.model_folder)),
                               notes_);
      model_ = std::make_unique<ModelRun>(resources, config_, model, std::move(mesh));
      references_ = std::make_unique<ReferenceData>(config_, model, options_.data_dir, disk_);
      snapshots_ = std::make_unique<WeightSnapshots>(model_->state(), disk_);
    });
    fill_values();
    for (const std::string& warning : model_->warnings())
      notes_.push_back(fmt::format("run.plan.styles: {}", warning));
  }

  std::int64_t step() const override { return model_->step(); }
  std::string plan_text() const override { return model_->plan_text(); }
  PromptLimits prompt_limits() const override {
    return train::prompt_limits(model_->model_config(), config_);
  }
  const std::vector<std::string>& notes() const override { return notes_; }

  bool weights_undefined() const override { return undefined_; }

  LossBatchLimits limits() const override {
    const nn::ModelConfig& model = model_->model_config();
    return {model.vocab_size, model.max_position_embeddings, config_.training().seq_len(),
            config_.training().micro_batch_size()};
  }

  v1::LossOutput forward_backward(const v1::LossBatch& batch, const WholeBatch& whole) override {
    snapshots_->use(nullptr);
    try {
      window_.check(batch);
      return call(batch, whole, options_.dropout, true);
    } catch (const std::exception& error) {
      window_.poison(error.what());
      throw;
    }
  }

  v1::LossOutput forward(const v1::LossBatch& batch, const WholeBatch& whole, bool train) override {
    snapshots_->use(nullptr);
    return call(batch, whole, options_.dropout && train, false);
  }

  void poison(const std::string& cause) override { window_.poison(cause); }

  v1::OptimStepOutput optim_step(const v1::OptimStepParams& params) override {
    const auto start = std::chrono::steady_clock::now();
    const StepValues values =
        step_values(params, config_.optimizer(), config_.training().max_norm());
    before_write();
    double factor = 1.0;
    try {
      factor = window_.close();
    } catch (const Error&) {
      model_->drop_gradients();
      throw;
    }
    model_->state().optimizer().set_values(values.optimizer);
    const StepResult result = update(values, factor);
    v1::OptimStepOutput output;
    output.set_step(model_->step());
    output.set_grad_norm(result.norm);
    output.set_lr(values.lr);
    output.set_loss(result.loss);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    output.set_seconds(seconds.count());
    return output;
  }

  void save_state(const fs::path& folder,
                  const std::map<std::string, std::string>& user_metadata) override {
    snapshots_->use(nullptr);
    Manifest manifest;
    manifest.user_metadata = user_metadata;
    model_->save_state_at(folder, std::move(manifest), carried_);
  }

  void load_state(const fs::path& folder, bool with_optimizer) override {
    const FoundCheckpoint found = open_checkpoint(world_, folder, disk_);
    std::optional<CheckpointReader> checkpoint;
    run_agreed(world_, [&] {
      check_same_model(found.manifest, model_->model_config(),
                       with_optimizer ? &config_.optimizer() : nullptr, folder.string());
      checkpoint.emplace(found.folder, found.manifest, disk_);
      model_->state().check(*checkpoint, with_optimizer);
    });
    before_write();
    // Not agreed: a rank that fails here alone has other weights than the others, and where all
    // fail they have read some.
    undefined_ = true;
    model_->load_state(*checkpoint, with_optimizer);
    undefined_ = false;
    window_ = {};
  }

  void export_hf(const fs::path& folder, const std::string& dtype) override {
    snapshots_->use(nullptr);
    model_->export_hf(folder, export_dtype(dtype), carried_);
  }

  std::vector<v1::ParameterValue> get_parameters(const std::vector<std::string>& names) override {
    snapshots_->use(nullptr);
    return whole_parameters(model_->state(), names);
  }

  void set_parameters(const std::vector<v1::ParameterValue>& values) override {
    set_whole_parameters(model_->state(), values, [&] {
      before_write();
      undefined_ = true;
    });
    undefined_ = false;
    model_->drop_gradients();
    window_ = {};
  }

  void keep_snapshot(const std::string& name) override {
    snapshots_->use(nullptr);
    snapshots_->keep(name, model_->step());
  }
  void drop_snapshot(const std::string& name) override { snapshots_->drop(name); }

  std::unique_ptr<SteppedSample> begin_sample(const std::vector<SampleStart>& sequences,
                                              const std::string& snapshot) override {
    return begin_sample(sequences, snapshot.empty() ? nullptr : snapshots_->find(snapshot));
  }

  std::unique_ptr<SteppedSample> begin_sample_from(const std::vector<SampleStart>& sequences,
                                                   const fs::path& folder,
                                                   std::int64_t step) override {
    WeightSnapshots::Handle weights;
    run_agreed(world_, [&] { weights = snapshots_->load(folder, step); });
    return begin_sample(sequences, std::move(weights));
  }

 private:
  /// Ends before the run.
  class OwnSample final : public SteppedSample {
   public:
    OwnSample(ModelSteppedRun& run, std::unique_ptr<Sample> sample, WeightSnapshots::Handle weights)
        : run_(run),
          sample_(std::move(sample)),
          weights_(std::move(weights)),
          writes_(run.snapshots_->writes()) {}

    std::vector<SampledToken> advance(std::chrono::milliseconds budget) override {
      run_.snapshots_->use(weights_);
      return sample_->advance(budget);
    }
    void end_sequences(const std::vector<std::size_t>& sequences) override {
      sample_->end_sequences(sequences);
    }
    bool done() const override { return sample_->done(); }
    std::int64_t step() const override { return weights_ ? weights_->step : run_.step(); }
    v1::LossOutput score(const v1::LossBatch& batch) override {
      if (!weights_ && run_.snapshots_->writes() != writes_)
        throw FailedPrecondition(
            "the weights were overwritten while the sample was drawn: draw from saved weights "
            "(SaveWeights in memory) to have log-probs of Forward beside training",
            "WEIGHTS_STALE", {{"step", std::to_string(run_.step())}});
      const TokenLoss loss = check_loss_batch(batch, run_.limits());
      run_.snapshots_->use(weights_);
      return run_.run_call(batch, whole_batch(loss, batch), false, false);
    }

   private:
    ModelSteppedRun& run_;
    const std::unique_ptr<Sample> sample_;
    const WeightSnapshots::Handle weights_;
    const std::int64_t writes_;
  };

  std::unique_ptr<SteppedSample> begin_sample(std::vector<SampleStart> starts,
                                              WeightSnapshots::Handle weights) {
    for (SampleStart& start : starts) start.log_probs = true;
    return std::make_unique<OwnSample>(*this, model_->begin_sample(starts), std::move(weights));
  }

  StepResult update(const StepValues& values, double factor) {
    undefined_ = true;
    try {
      const StepResult result = model_->optim_step(values.lr, values.max_norm, factor);
      undefined_ = false;
      return result;
    } catch (const NumericError&) {
      undefined_ = false;  // the update has left all as it was
      throw;
    }
  }

  /// The weights are about to be overwritten. What fails on a rank is thrown by all, before.
  void before_write() {
    if (snapshots_->to_be_copied())
      run_agreed(world_, [&] { snapshots_->before_write(); });
    else
      snapshots_->before_write();
  }

  void fill_values() {
    if (!options_.state_folder.empty())
      return load_state(options_.state_folder, options_.with_optimizer);
    run_agreed(world_, [&] {
      model_->initialize(options_.data_dir, options_.model_folder, disk_, &notes_);
    });
  }

  BatchSplit split_of(const v1::LossBatch& batch, const WholeBatch& whole) const {
    BatchSplit split;
    split.samples = whole.samples;
    split.micro_batch_size = micro_batch_size_of(batch, config_.training().micro_batch_size());
    split.ranks = model_->mesh().data().size();
    split.first_sample = window_.samples();
    split.documents = model_->model_config().architecture == nn::Architecture::kBert ||
                      balances_documents(config_.plan());
    return split;
  }

  v1::LossOutput call(const v1::LossBatch& batch, const WholeBatch& whole, bool dropout,
                      bool backward) {
    if (!batch.has_reference()) return run_call(batch, whole, dropout, backward);
    const ReferenceData::Samples read = references_->read(batch, model_->mesh());
    v1::LossOutput output = run_call(read.batch, read.whole, dropout, backward);
    if (world_.rank() == 0) *output.mutable_data_identity() = read.identity;
    return output;
  }

  v1::LossOutput run_call(const v1::LossBatch& batch, const WholeBatch& whole, bool dropout,
                          bool backward) {
    const TokenLoss loss =
        make_token_loss(batch.loss(), {batch.loss_config().begin(), batch.loss_config().end()});
    const BatchSplit split = split_of(batch, whole);
    TokenCall call;
    call.micro_batches = split_batch(batch, split, model_->mesh().data().rank());
    call.scale = GradientWindow::scale(batch);
    call.dropout = dropout;
    // One target a token and weights: the loss has an op of its own.
    if (!loss.weighted() || whole.several_targets) call.loss = loss_function(loss, batch);
    const LogProbs mine = backward ? model_->forward_backward(call) : model_->forward(call);
    const auto log_probs = gather_log_probs(model_->mesh(), batch, split, call.micro_batches, mine);
    v1::LossOutput output;
    run_agreed(world_, [&] {
      if (world_.rank() == 0) output = loss_output(loss, batch, log_probs);
    });
    if (backward) window_.add(batch, whole.samples, whole.counted_tokens);
    return output;
  }

  comm::ProcessGroup& world_;
  base::Disk& disk_;
  v1::RunConfig config_;
  SteppedRunOptions options_;
  std::vector<CarriedFile> carried_;  ///< along with checkpoints and exports, on rank 0
  std::unique_ptr<ModelRun> model_;
  std::unique_ptr<ReferenceData> references_;
  std::unique_ptr<WeightSnapshots> snapshots_;
  GradientWindow window_;
  bool undefined_ = false;  ///< the weights
  std::vector<std::string> notes_;
};

}  // namespace

std::unique_ptr<SteppedRun> SteppedRun::create(const RankResources& resources,
                                               const v1::RunConfig& resolved,
                                               const SteppedRunOptions& options) {
  return std::make_unique<ModelSteppedRun>(resources, resolved, options);
}

}  // namespace meshloom::train
