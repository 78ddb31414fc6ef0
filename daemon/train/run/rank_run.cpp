// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/rank_run.h"

#include <optional>
#include <utility>

#include "daemon/comm/agreement/given_agreement.h"
#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/config/chat_prompt.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/config/resolve.h"
#include "daemon/train/config/resolve_plan.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/data/run_data.h"
#include "daemon/train/optim/step_values.h"
#include "daemon/train/run/checkpoint_reader.h"
#include "daemon/train/run/generation.h"
#include "daemon/train/run/loss_outputs.h"
#include "daemon/train/run/model_agreement.h"
#include "daemon/train/run/replica_check.h"
#include "daemon/train/run/stop_points.h"
#include "daemon/train/run/validation_losses.h"
#include "daemon/train/run/whole_parameters.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Times of threads are read in one step in so long: that may take a millisecond.
constexpr std::chrono::milliseconds kBetweenCoreTimes{250};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::unique_ptr<Run> Run::create(const RankResources& resources, const v1::RunConfig& resolved,
                                 const RunOptions& options) {
  return std::make_unique<RankRun>(resources, resolved, options);
}

RankRun::RankRun(const RankResources& resources, const v1::RunConfig& config,
                 const RunOptions& options)
    : world_(*resources.world), resources_(resources), config_(config), options_(options) {
  comm::check_same_text(world_, "the resolved config", to_json_text(config_));
  auto mesh = std::make_unique<RunMesh>(world_, mesh_layout(config_.mesh()));
  const nn::ModelConfig model =
      agree_on_model(world_, config_, options_, resources_.files(), notes_);
  run_agreed(world_, [&] { open(resources, model, std::move(mesh)); });
  if (checkpoints_)
    begin_job();
  else if (!options_.folders.state.empty())
    load_state(options_.folders.state, options_.with_optimizer);
  else
    run_agreed(world_, [&] {
      model_->initialize(options_.folders.data_dir, options_.folders.model, resources_.files(),
                         &notes_);
    });
  for (const std::string& warning : model_->state().warnings())
    notes_.push_back(fmt::format("run.plan.styles: {}", warning));
  counted_ = model_->mesh().counters();
}

RankRun::~RankRun() = default;

void RankRun::open(const RankResources& resources, const nn::ModelConfig& model,
                   std::unique_ptr<RunMesh> mesh) {
  base::Disk& disk = resources_.files();
  for (std::string& note : nn::config_notes(model)) notes_.push_back(std::move(note));
  if (world_.rank() == 0) {
    const fs::path source =
        source_folder(config_.model(), options_.folders.data_dir, options_.folders.model);
    carried_ = read_carried_files(text::carried_files(source, options_.folders.tokenizer), notes_);
    carry_chat_of_job(config_.data(), options_.folders.tokenizer, options_.folders.data_dir,
                      carried_);
  }
  if (options_.with_data) {
    const RunData data =
        open_run_data(config_, model, options_.folders.data_dir, "run.data", options_.text, disk);
    check_internal(data.training != nullptr, "the run's text is not tokenized");
    check_enough(config_, data);
    data_ = std::make_unique<DataFeed>(config_, data, model, mesh->data());
    checkpoints_ =
        std::make_unique<JobCheckpoints>(resources_, config_, options_, data_->identity());
  }
  model_ = std::make_unique<ModelRun>(resources, config_, model, std::move(mesh));
  references_ = std::make_unique<ReferenceData>(config_, model, options_.folders.data_dir, disk);
  snapshots_ = std::make_unique<WeightSnapshots>(model_->state(), disk);
}

void RankRun::begin_job() {
  checkpoints_->begin(*model_, notes_);
  if (checkpoints_->validates_all() || !data_->leave_out_rests()) return;
  if (config_.validation().interval() > 0)
    notes_.push_back(
        "validations leave out the last tokens of their data, which fill no sample, as this job's "
        "did before its checkpoint: its losses stay comparable. New jobs and \"meshloom "
        "evaluate\" count every token");
}

PromptLimits RankRun::prompt_limits() const {
  return train::prompt_limits(model_->model_config(), config_);
}

LossBatchLimits RankRun::limits() const {
  const nn::ModelConfig& model = model_->model_config();
  return {model.vocab_size, model.longest_sequence(), config_.training().seq_len(),
          config_.training().micro_batch_size()};
}

nn::ModelFlops RankRun::flops() const { return nn::model_flops(model_->model_config()); }

DataSize RankRun::data_size() const {
  if (!data_) return {};
  return {data_->identity().tokens(), data_->training_samples(), data_->chat_cuts()};
}

JobProgress RankRun::job_progress() const {
  return checkpoints_ ? checkpoints_->progress() : JobProgress();
}

const DataFeed& RankRun::own_data(const char* verb) const {
  if (data_) return *data_;
  throw FailedPrecondition(
      fmt::format("{}: this run was made without data of its own; send a batch, or name samples of "
                  "a file",
                  verb),
      "NO_DATA");
}

void RankRun::begin_gradients() {
  if (model_->has_gradients() || window_.samples() > 0) return;
  model_->phases().clear();
  core_times_begin_.reset();
  if (Clock::now() - core_times_read_ >= kBetweenCoreTimes) core_times_begin_ = read_core_times();
  step_begin_ = Clock::now();
}

v1::LossOutput RankRun::forward_backward(const v1::LossBatch& batch, const WholeBatch& whole) {
  snapshots_->use(nullptr);
  try {
    window_.check(batch);
    begin_gradients();
    return call(batch, whole, options_.dropout, true);
  } catch (const std::exception& error) {
    window_.poison(error.what());
    throw;
  }
}

BatchWork RankRun::forward_backward(const TrainingBatch& batch) {
  const DataFeed& data = own_data("forward_backward");
  if (model_->has_gradients())
    throw FailedPrecondition(
        "forward_backward: the gradients of the step before were not used yet; call optim_step");
  snapshots_->use(nullptr);
  begin_gradients();
  try {
    FedBatch fed;
    {
      const PhaseTimer timer(model_->phases(), "data");
      fed = data.training_batch(batch.first_sample, world_, model_->mesh().leads_samples());
    }
    BatchCall call;
    call.micro_batches = std::move(fed.micro_batches);
    call.scale = 1.0f / static_cast<float>(fed.labels);
    call.dropout = call.last = true;
    model_->forward_backward(call);
    // Own data is reduced as a batch that tells the labels of its step.
    v1::LossBatch reduction;
    reduction.set_reduction(v1::LOSS_REDUCTION_TOKEN_MEAN);
    reduction.set_tokens(fed.labels);
    window_.add(reduction, config_.training().global_batch_size(), fed.labels);
    return fed.work;
  } catch (const std::exception& error) {
    window_.poison(error.what());
    throw;
  }
}

v1::LossOutput RankRun::forward(const v1::LossBatch& batch, const WholeBatch& whole, bool train) {
  snapshots_->use(nullptr);
  return call(batch, whole, options_.dropout && train, false);
}

std::vector<LossSum> RankRun::forward(const ValidationBatches& batches) {
  const DataFeed& data = own_data("forward");
  snapshots_->use(nullptr);
  return validation_losses(*model_, data, batches, world_);
}

StepOutput RankRun::optim_step(const v1::OptimStepParams& params) {
  const auto begin = Clock::now();
  const StepValues values = step_values(params, config_.optimizer(), config_.training().max_norm());
  before_write();
  const GradientWindow window = window_;
  double factor = 1.0;
  try {
    factor = window_.close();
  } catch (const Error&) {
    model_->drop_gradients();
    throw;
  }
  model_->state().optimizer().set_values(values.optimizer);
  StepResult result;
  undefined_ = true;
  try {
    result = model_->optim_step(values.lr, values.max_norm, factor);
  } catch (const NumericError&) {
    undefined_ = false;  // the update has left all as it was
    throw;
  }
  undefined_ = false;
  StepOutput output;
  output.values.set_step(model_->step());
  output.values.set_grad_norm(result.norm);
  output.values.set_lr(values.lr);
  output.values.set_loss(result.loss);
  output.values.set_tokens(window.counted());
  if (window.counted() > 0) output.values.set_mean_loss(window.mean_of(result.loss));
  output.values.set_seconds(seconds_since(begin));
  output.step_seconds = seconds_since(step_begin_);
  output.core_times = core_times_of_step();
  output.phase_seconds = model_->phases().seconds();
  output.collectives = collectives_of_step();
  return output;
}

std::optional<CoreTimes> RankRun::core_times_of_step() {
  if (!core_times_begin_) return std::nullopt;
  const auto now = read_core_times();
  core_times_read_ = Clock::now();
  const auto begin = std::exchange(core_times_begin_, std::nullopt);
  return now ? std::optional(core_times_between(*begin, *now)) : std::nullopt;
}

std::vector<v1::CollectiveMetrics> RankRun::collectives_of_step() {
  GroupCounters now = model_->mesh().counters();
  std::vector<v1::CollectiveMetrics> items;
  for (const auto& [key, counter] : now) {
    const comm::CommCounter before = counted_[key];
    if (counter.calls == before.calls) continue;
    v1::CollectiveMetrics& item = items.emplace_back();
    item.set_group(key.first);
    item.set_collective(key.second);
    item.set_calls(static_cast<std::int64_t>(counter.calls - before.calls));
    item.set_bytes_sent(static_cast<std::int64_t>(counter.bytes_sent - before.bytes_sent));
  }
  counted_ = std::move(now);
  return items;
}

void RankRun::save_state(const fs::path& folder,
                         const std::map<std::string, std::string>& user_metadata) {
  snapshots_->use(nullptr);
  Manifest manifest;
  manifest.user_metadata = user_metadata;
  model_->save_state_at(folder, std::move(manifest), carried_);
}

void RankRun::save_checkpoint(const JobProgress& progress, int keep_latest_k) {
  if (options_.folders.checkpoints.empty())
    throw FailedPrecondition("save_checkpoint: this run has no checkpoint folder");
  own_data("save_checkpoint");
  snapshots_->use(nullptr);
  checkpoints_->save(*model_, progress, keep_latest_k, carried_);
}

void RankRun::load_state(const fs::path& folder, bool with_optimizer) {
  base::Disk& disk = resources_.files();
  const FoundCheckpoint found = open_checkpoint(world_, folder, disk);
  std::optional<CheckpointReader> checkpoint;
  run_agreed(world_, [&] {
    check_same_model(found.manifest, model_->model_config(),
                     with_optimizer ? &config_.optimizer() : nullptr, folder.string());
    checkpoint.emplace(found.folder, found.manifest, disk);
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

void RankRun::export_hf(const fs::path& folder, const std::string& dtype) {
  snapshots_->use(nullptr);
  model_->state().export_hf(folder, export_dtype(dtype), carried_);
}

std::vector<v1::ParameterValue> RankRun::get_parameters(const std::vector<std::string>& names) {
  snapshots_->use(nullptr);
  return whole_parameters(model_->state(), names);
}

void RankRun::set_parameters(const std::vector<v1::ParameterValue>& values) {
  set_whole_parameters(model_->state(), values, [&] {
    before_write();
    undefined_ = true;
  });
  undefined_ = false;
  model_->drop_gradients();
  window_ = {};
}

void RankRun::keep_snapshot(const std::string& name) {
  snapshots_->use(nullptr);
  snapshots_->keep(name, model_->step());
}

void RankRun::before_write() {
  if (snapshots_->to_be_copied())
    run_agreed(world_, [&] { snapshots_->before_write(); });
  else
    snapshots_->before_write();
}

v1::LossOutput RankRun::call(const v1::LossBatch& batch, const WholeBatch& whole, bool dropout,
                             bool backward) {
  if (!batch.has_reference()) return run_call(batch, whole, dropout, backward);
  const ReferenceData::Samples read =
      references_->read(batch, model_->mesh(), whole.text ? *whole.text : TokenizedText());
  v1::LossOutput output = run_call(read.batch, read.whole, dropout, backward);
  if (world_.rank() == 0) *output.mutable_data_identity() = read.identity;
  return output;
}

v1::LossOutput RankRun::run_call(const v1::LossBatch& batch, const WholeBatch& whole, bool dropout,
                                 bool backward) {
  const TokenLoss loss =
      make_token_loss(batch.loss(), {batch.loss_config().begin(), batch.loss_config().end()});
  BatchSplit split;
  split.samples = whole.samples;
  split.micro_batch_size = micro_batch_size_of(batch, config_.training().micro_batch_size());
  split.ranks = model_->mesh().data().size();
  split.first_sample = window_.samples();
  split.documents = !model_->model_config().is_causal() || balances_documents(config_.plan());
  BatchCall call;
  call.micro_batches = split_batch(batch, split, model_->mesh().data().rank());
  call.scale = GradientWindow::scale(batch);
  call.dropout = dropout;
  call.log_probs = true;
  // One target a token and weights: the loss has an op of its own.
  if (!loss.weighted() || whole.several_targets) call.loss = loss_function(loss, batch);
  StopPoints stops(world_, options_.stopped, call.micro_batches.size());
  call.before = [&](std::size_t micro_batch) { stops.before(micro_batch); };
  const LogProbs mine = backward ? model_->forward_backward(call) : model_->forward(call).log_probs;
  const auto log_probs = gather_log_probs(model_->mesh(), batch, split, call.micro_batches, mine);
  v1::LossOutput output;
  run_agreed(world_, [&] {
    if (world_.rank() != 0) return;
    stops.check_last();
    output = loss_output(loss, batch, log_probs);
  });
  if (backward) window_.add(batch, whole.samples, whole.counted_tokens);
  return output;
}

/// Ends before the run.
class RankRun::OwnSample final : public RunSample {
 public:
  OwnSample(RankRun& run, std::unique_ptr<Sample> sample, WeightSnapshots::Handle weights)
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
  RankRun& run_;
  const std::unique_ptr<Sample> sample_;
  const WeightSnapshots::Handle weights_;
  const std::int64_t writes_;
};

std::unique_ptr<RunSample> RankRun::begin_sample(const std::vector<SampleStart>& sequences,
                                                 const std::string& snapshot) {
  WeightSnapshots::Handle weights = snapshot.empty() ? nullptr : snapshots_->find(snapshot);
  return std::make_unique<OwnSample>(*this, begin_sample_on_mesh(model_->state(), sequences),
                                     std::move(weights));
}

std::unique_ptr<RunSample> RankRun::begin_sample_from(const std::vector<SampleStart>& sequences,
                                                      const fs::path& folder, std::int64_t step) {
  WeightSnapshots::Handle weights;
  run_agreed(world_, [&] { weights = snapshots_->load(folder, step); });
  return std::make_unique<OwnSample>(*this, begin_sample_on_mesh(model_->state(), sequences),
                                     std::move(weights));
}

}  // namespace meshloom::train
