// SPDX-License-Identifier: Apache-2.0
// A stand-in for the training engine: counts steps, keeps checkpoints as folders with a manifest,
// fails on request.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/control/ranks/run_factory.h"
#include "daemon/control/ranks/source_cache.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/run/sampler.h"
#include "daemon/train/run/stop_points.h"
#include "kernels/base/error.h"

namespace meshloom::control {

/// Shared by all ranks of a test; set before the run begins.
struct FakePlan {
  int ranks = 2;                        ///< of runs that a client drives, as dp
  std::int64_t fail_at_step = -1;       ///< optim_step throws NumericError
  std::int64_t lose_rank_at_step = -1;  ///< optim_step throws CommError
  /// optim_step of a client's run fails on rank 1 alone.
  std::atomic<std::int64_t> fail_alone_at_step{-1};
  std::int64_t fail_save_at_step = -1;
  std::atomic<bool> fail_saves{false};
  std::function<void()> on_save_state = [] {};  ///< of a client's run, on rank 0
  std::atomic<std::chrono::milliseconds> step_time{std::chrono::milliseconds(0)};
  /// A job calls these on rank 0: while this step is computed, and when these weights are saved.
  std::function<void(std::int64_t step)> on_step = [](std::int64_t) {};
  std::function<void(std::int64_t step, const train::JobProgress&)> on_save =
      [](std::int64_t, const train::JobProgress&) {};
  std::function<void()> on_create_job = [] {};  ///< on each rank, when a job's run is made
  /// What fits a job to the ranks before it begins (ConfigResolver::refit).
  std::function<std::optional<v1::RunConfig>(const v1::Job&)> on_refit = [](const v1::Job&) {
    return std::optional<v1::RunConfig>();
  };
  std::string narrow_dtype;  ///< whose exports of a job are refused: it does not reach a weight
  std::int64_t vocab_size = 256;
  std::string no_tokenizer;                          ///< why a model of another vocabulary has none
  std::shared_ptr<const text::Tokenizer> tokenizer;  ///< that of the model's folder
  std::int64_t context_length = 64;
  bool ends_with_context = false;      ///< sequences that are not to go on past it
  train::GenerationConfig generation;  ///< of the model's folder
  /// What a sample begins with, on each rank that draws it.
  std::function<void(const std::vector<train::SampleStart>&)> on_sample =
      [](const std::vector<train::SampleStart>&) {};
  std::chrono::milliseconds token_time{0};
  std::atomic<std::chrono::milliseconds> batch_time{std::chrono::milliseconds(0)};  ///< validation
  /// Gives the loss of a job's validation on a set (empty: run.data's own data) after a step; none:
  /// that of FakeRun::loss_at, plus 1.
  std::function<double(std::int64_t step, const std::string& set)> validation_loss;
  std::size_t parameter_bytes = 0;  ///< of get_parameters, beside the value
  std::atomic<int> live_runs{0};
  std::atomic<int> sources{0};                     ///< loaded at this moment
  std::atomic<std::int64_t> cache_room{1 << 30};   ///< bytes for keys and values of sequences
  std::atomic<int> snapshots{0};                   ///< whose memory is counted
  std::function<void()> on_hold_snapshot = [] {};  ///< when memory for one is asked for
  std::atomic<std::int64_t> uptime{1000};          ///< seconds
  std::atomic<std::int64_t> upload_room{std::int64_t{1} << 40};  ///< of the largest
  std::atomic<std::int64_t> upload_bytes{0};                     ///< whose memory is counted
  std::atomic<std::int64_t> most_upload_bytes{0};
  double measured_peak_flops = 0.0;  ///< of a rank
  /// So many calls of load_state, one of each rank, fail after they have begun to write.
  std::atomic<int> failing_loads{0};
  std::atomic<int> sources_made{0};     ///< loaded so far
  std::atomic<int> sequences_ended{0};  ///< before all of their tokens were drawn, on any rank
  std::atomic<bool> trains{false};      ///< samples keep to their share as if a job trained

  train::PromptLimits limits() const {
    train::PromptLimits limits{vocab_size, context_length, 10, 1};
    limits.no_tokenizer = no_tokenizer;
    limits.generation = generation;
    limits.tokenizer = tokenizer;
    return limits;
  }
};

/// The letters from `first` on for each sequence, moved by the last token of its prompt where
/// `by_prompt`, a token of each for a slice that
/// FakePlan::token_time says something of, else as many as are asked for. End tokens end a
/// sequence, and so does the context where the plan says so.
class FakeSample final : public train::Sample {
 public:
  FakeSample(FakePlan& plan, const std::vector<train::SampleStart>& sequences, char first,
             bool by_prompt)
      : plan_(plan), sequences_(sequences), first_(first), by_prompt_(by_prompt) {
    plan_.on_sample(sequences_);
  }
  std::vector<train::SampledToken> advance(std::chrono::milliseconds) override {
    std::vector<train::SampledToken> tokens;
    for (int pass = 0; pass < (plan_.token_time.count() == 0 ? 100 : 1) && !done(); ++pass) {
      std::this_thread::sleep_for(plan_.token_time);
      for (std::size_t i = 0; i < sequences_.size(); ++i) {
        if (ended(i)) continue;
        const auto at = sequences_[i].drawn_before + drawn_;
        const std::int64_t id = first_of(i) + static_cast<std::int64_t>(at % 26);
        tokens.push_back({i, id, finish_of(i, id)});
        if (tokens.back().last()) sequences_[i].params.set_max_tokens(static_cast<int>(drawn_));
      }
      ++drawn_;
    }
    return tokens;
  }
  void end_sequences(const std::vector<std::size_t>& sequences) override {
    for (const std::size_t i : sequences) {
      if (!ended(i)) ++plan_.sequences_ended;
      sequences_.at(i).params.set_max_tokens(0);
    }
  }
  bool done() const override {
    for (std::size_t i = 0; i < sequences_.size(); ++i)
      if (!ended(i)) return false;
    return true;
  }

 private:
  std::uint64_t wanted(std::size_t i) const {
    return static_cast<std::uint64_t>(sequences_[i].params.max_tokens());
  }
  bool ended(std::size_t i) const { return drawn_ >= wanted(i); }
  v1::FinishReason finish_of(std::size_t i, std::int64_t id) const {
    const train::SampleStart& sequence = sequences_[i];
    const auto& ends = sequence.end_tokens;
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) return v1::FINISH_REASON_EOS;
    if (drawn_ + 1 == wanted(i)) return v1::FINISH_REASON_LENGTH;
    const auto length = static_cast<std::int64_t>(sequence.prompt.size() + drawn_) + 1;
    return plan_.ends_with_context && !sequence.params.past_context() &&
                   length > plan_.context_length
               ? v1::FINISH_REASON_CONTEXT
               : v1::FINISH_REASON_UNSPECIFIED;
  }
  std::int64_t first_of(std::size_t i) const {
    return first_ + (by_prompt_ ? sequences_[i].prompt.back() % 26 : 0);
  }

  FakePlan& plan_;
  std::vector<train::SampleStart> sequences_;
  char first_;
  bool by_prompt_;
  std::uint64_t drawn_ = 0;  ///< of every sequence that has not ended
};

class FakeRunSample final : public train::RunSample {
 public:
  FakeRunSample(FakePlan& plan, const std::vector<train::SampleStart>& sequences,
                std::function<std::int64_t()> step)
      : sample_(plan, sequences, 'a', true), step_(std::move(step)) {}
  std::vector<train::SampledToken> advance(std::chrono::milliseconds budget) override {
    return sample_.advance(budget);
  }
  void end_sequences(const std::vector<std::size_t>& sequences) override {
    sample_.end_sequences(sequences);
  }
  bool done() const override { return sample_.done(); }
  std::int64_t step() const override { return step_(); }
  /// Scores of a token are its id.
  v1::LossOutput score(const v1::LossBatch& batch) override {
    v1::LossOutput output;
    for (const v1::Datum& datum : batch.data()) {
      v1::DatumOutput& told = *output.add_outputs();
      for (const int target : datum.targets()) told.add_logprobs(static_cast<float>(target));
    }
    return output;
  }

 private:
  FakeSample sample_;
  std::function<std::int64_t()> step_;
};

/// What the stand-ins of a job's run and of a client's have in common; neither has the verbs that
/// only the other one is asked for.
class FakeRunBase : public train::Run {
 public:
  FakeRunBase(FakePlan& plan, bool writes) : plan_(plan), writes_(writes) { ++plan_.live_runs; }
  ~FakeRunBase() override { --plan_.live_runs; }

  std::int64_t step() const override { return step_; }
  const std::vector<std::string>& notes() const override { return notes_; }
  train::PromptLimits prompt_limits() const override { return plan_.limits(); }
  train::LossBatchLimits limits() const override { return {plan_.vocab_size, 64, 1 << 22, 1}; }
  bool weights_undefined() const override { return false; }

  v1::LossOutput forward_backward(const v1::LossBatch&, const train::WholeBatch&) override {
    no_verb();
  }
  train::BatchWork forward_backward(const train::TrainingBatch&) override { no_verb(); }
  v1::LossOutput forward(const v1::LossBatch&, const train::WholeBatch&, bool) override {
    no_verb();
  }
  std::vector<train::LossSum> forward(const train::ValidationBatches&) override { no_verb(); }
  void poison(const std::string&) override { no_verb(); }
  void save_state(const std::filesystem::path&,
                  const std::map<std::string, std::string>&) override {
    no_verb();
  }
  void save_checkpoint(const train::JobProgress&, int) override { no_verb(); }
  void load_state(const std::filesystem::path&, bool) override { no_verb(); }
  std::vector<v1::ParameterValue> get_parameters(const std::vector<std::string>&) override {
    no_verb();
  }
  void set_parameters(const std::vector<v1::ParameterValue>&) override { no_verb(); }
  void keep_snapshot(const std::string&) override { no_verb(); }
  void drop_snapshot(const std::string&) override { no_verb(); }
  std::unique_ptr<train::RunSample> begin_sample(const std::vector<train::SampleStart>& sequences,
                                                 const std::string&) override {
    return draw(sequences, [this] { return step_; });
  }
  std::unique_ptr<train::RunSample> begin_sample_from(const std::vector<train::SampleStart>&,
                                                      const std::filesystem::path&,
                                                      std::int64_t) override {
    no_verb();
  }

 protected:
  std::unique_ptr<train::RunSample> draw(const std::vector<train::SampleStart>& sequences,
                                         std::function<std::int64_t()> step) {
    return std::make_unique<FakeRunSample>(plan_, sequences, std::move(step));
  }

  FakePlan& plan_;
  const bool writes_;
  std::int64_t step_ = 0;

 private:
  [[noreturn]] static void no_verb() { throw InternalError("a verb of the other stand-in"); }

  std::vector<std::string> notes_;
};

/// A job's: the loss goes by the step alone.
class FakeRun final : public FakeRunBase {
 public:
  FakeRun(FakePlan& plan, const train::RunOptions& options, bool writes)
      : FakeRunBase(plan, writes), folder_(options.folders.checkpoints) {
    std::error_code error;
    for (const auto& item : std::filesystem::directory_iterator(folder_, error))
      step_ = std::max<std::int64_t>(step_, std::stoll(item.path().filename().string().substr(5)));
    std::ifstream progress(checkpoint() / kProgress);
    v1::ValidationProgress validation;
    validation.ParseFromIstream(&progress);
    progress_.validation = validation;
  }

  using FakeRunBase::forward;
  using FakeRunBase::forward_backward;

  static double loss_at(std::int64_t step) { return 5.0 / (1.0 + static_cast<double>(step)); }

  train::JobProgress job_progress() const override { return progress_; }
  train::BatchWork forward_backward(const train::TrainingBatch&) override {
    std::this_thread::sleep_for(plan_.step_time.load());
    if (writes_) plan_.on_step(step_ + 1);
    return {1, 1, 0.5};
  }
  train::StepOutput optim_step(const v1::OptimStepParams& params) override {
    if (step_ + 1 == plan_.fail_at_step)
      throw NumericError("loss is nan at step " + std::to_string(step_ + 1) +
                         ", first parameter wte.weight");
    if (step_ + 1 == plan_.lose_rank_at_step) throw CommError("all_reduce: rank 1 is missing");
    train::StepOutput output;
    output.values.set_step(++step_);
    output.values.set_loss(loss_at(step_));
    output.values.set_lr(params.lr());
    output.step_seconds = 0.001;
    output.phase_seconds = {{"forward", 0.5}};
    return output;
  }
  std::vector<train::LossSum> forward(const train::ValidationBatches& batches) override {
    std::this_thread::sleep_for(plan_.batch_time.load() * batches.count);
    const double loss =
        plan_.validation_loss ? plan_.validation_loss(step_, batches.set) : loss_at(step_) + 1;
    return std::vector<train::LossSum>(static_cast<std::size_t>(batches.count), {loss, 1});
  }
  /// Deletes none.
  void save_checkpoint(const train::JobProgress& progress, int) override {
    if (step_ == plan_.fail_save_at_step || plan_.fail_saves)
      throw ResourceExhausted("no space left on device", "DISK_FULL");
    if (!writes_) return;
    plan_.on_save(step_, progress);
    std::filesystem::create_directories(checkpoint());
    std::ofstream(checkpoint() / "manifest.json") << "{}";
    std::ofstream(checkpoint() / "weights.bin") << std::string(3'000'000, 'w');
    // The progress is there only if there is any, as in a manifest.
    if (progress.validation.ByteSizeLong() > 0) {
      std::ofstream out(checkpoint() / kProgress);
      progress.validation.SerializeToOstream(&out);
    }
  }
  void export_hf(const std::filesystem::path& folder, const std::string& dtype) override {
    if (!plan_.narrow_dtype.empty() && dtype == plan_.narrow_dtype)
      throw FailedPrecondition("export: h.weight has the value 1e+06", train::kValueOverflows);
    if (!writes_) return;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "config.json") << "{}";
  }

 private:
  static constexpr const char* kProgress = "progress.pb";
  std::filesystem::path checkpoint() const { return folder_ / ("step-" + std::to_string(step_)); }

  std::filesystem::path folder_;
  train::JobProgress progress_;  ///< of the checkpoint that it began with
};

/// A token that every rank of a FakeSteppedRun refuses.
inline constexpr int kBadToken = 255;

/// Gradients are sums of tokens, parameters one number: a step takes lr times the gradients from
/// it. Rank 0, which has all data, counts. What fails is in FakePlan.
class FakeSteppedRun final : public FakeRunBase {
 public:
  FakeSteppedRun(FakePlan& plan, const train::RunOptions& options, bool writes)
      : FakeRunBase(plan, writes), stopped_(options.stopped) {
    if (!options.folders.state.empty()) load_state(options.folders.state, options.with_optimizer);
  }

  using FakeRunBase::forward;
  using FakeRunBase::forward_backward;

  std::string plan_text() const override { return "one number"; }
  v1::LossOutput forward_backward(const v1::LossBatch& batch,
                                  const train::WholeBatch& whole) override {
    v1::LossOutput output;
    try {
      output = forward(batch, whole, false);
    } catch (const Error& error) {
      poison(error.what());
      throw;
    }
    gradient_ += output.metrics().at("loss:sum");
    has_gradients_ = true;
    return output;
  }
  v1::LossOutput forward(const v1::LossBatch& batch, const train::WholeBatch&, bool) override {
    compute();
    v1::LossOutput output;
    double sum = 0;
    for (const v1::Datum& datum : batch.data()) {
      v1::DatumOutput& told = *output.add_outputs();
      for (int i = 0; i < datum.tokens_size(); ++i) {
        if (datum.tokens(i) == kBadToken) throw NumericError("a token is bad", "NON_FINITE_LOSS");
        sum += datum.tokens(i);
        told.add_losses(static_cast<float>(datum.tokens(i)));
      }
    }
    (*output.mutable_metrics())["loss:sum"] = sum;
    return output;
  }
  void poison(const std::string& cause) override {
    if (poison_.empty()) poison_ = cause;
  }
  train::StepOutput optim_step(const v1::OptimStepParams& params) override {
    if (step_ + 1 == plan_.fail_alone_at_step)
      comm::rethrow_failed_alone(
          comm::encode_error(std::make_exception_ptr(InternalError("odd", "ODD")), 1), 1);
    if (!std::isfinite(params.lr())) throw InvalidArgument("lr is not finite");
    const bool gradients = std::exchange(has_gradients_, false);
    const double gradient = std::exchange(gradient_, 0.0);
    if (const std::string cause = std::exchange(poison_, ""); !cause.empty())
      throw FailedPrecondition("gradients are poisoned: " + cause, "GRADIENTS_POISONED");
    if (!gradients) throw FailedPrecondition("there are no gradients", "NO_GRADIENTS");
    weight_ -= params.lr() * gradient;
    train::StepOutput output;
    output.values.set_step(++step_);
    output.values.set_grad_norm(std::abs(gradient));
    return output;
  }
  void save_state(const std::filesystem::path& folder,
                  const std::map<std::string, std::string>&) override {
    if (plan_.fail_saves) throw ResourceExhausted("no space left on device", "DISK_FULL");
    if (!writes_) return;
    plan_.on_save_state();
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "state") << step_ << ' ' << weight_;
  }
  bool weights_undefined() const override { return undefined_; }
  void load_state(const std::filesystem::path& folder, bool with_optimizer) override {
    if (plan_.failing_loads > 0) {
      --plan_.failing_loads;
      undefined_ = true;
      throw DataLoss("half of a state could be read", "CHECKPOINT_CORRUPT");
    }
    std::ifstream file(folder / "state");
    if (!file) throw NotFound(folder.string() + " is no checkpoint", "CHECKPOINT_NOT_FOUND");
    if (!(file >> step_ >> weight_)) throw DataLoss(folder.string() + " is damaged");
    if (!with_optimizer) step_ = 0;
    gradient_ = 0;
    has_gradients_ = false;
    poison_.clear();
  }
  void export_hf(const std::filesystem::path& folder, const std::string&) override {
    if (!writes_) return;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "config.json") << "{}";
    std::ofstream(folder / "model.safetensors") << std::string(2'500'000, 'm') << weight_;
  }
  std::vector<v1::ParameterValue> get_parameters(const std::vector<std::string>& names) override {
    std::vector<v1::ParameterValue> values(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      values[i].set_name(names[i]);
      values[i].set_data(std::to_string(weight_) + std::string(plan_.parameter_bytes, ' '));
    }
    return values;
  }
  void set_parameters(const std::vector<v1::ParameterValue>& values) override {
    for (const v1::ParameterValue& value : values) weight_ = std::stod(value.data());
    gradient_ = 0;
    has_gradients_ = false;
    poison_.clear();
  }
  void keep_snapshot(const std::string& name) override { snapshots_[name] = step_; }
  void drop_snapshot(const std::string& name) override { snapshots_.erase(name); }
  std::unique_ptr<train::RunSample> begin_sample(const std::vector<train::SampleStart>& sequences,
                                                 const std::string& snapshot) override {
    if (snapshot.empty()) return FakeRunBase::begin_sample(sequences, snapshot);
    if (snapshots_.count(snapshot) == 0)
      throw FailedPrecondition("no such snapshot", "SNAPSHOT_STALE");
    return draw(sequences, [step = snapshots_.at(snapshot)] { return step; });
  }
  std::unique_ptr<train::RunSample> begin_sample_from(
      const std::vector<train::SampleStart>& sequences, const std::filesystem::path& folder,
      std::int64_t step) override {
    if (!std::filesystem::exists(folder / "model.safetensors")) throw NotFound("no weights");
    return draw(sequences, [step] { return step; });
  }

 private:
  /// Sleeps for the time that computing takes, unless it is stopped meanwhile. The other ranks
  /// follow rank 0.
  void compute() const {
    if (!writes_) return;
    const auto end = std::chrono::steady_clock::now() + plan_.step_time.load();
    do {
      const bool over = std::chrono::steady_clock::now() >= end;
      if (stopped_ && stopped_(over)) throw Cancelled("it was stopped", train::kVerbStopped);
      if (over) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (true);
  }

  const std::function<bool(bool last)> stopped_;
  double weight_ = 0, gradient_ = 0;
  bool has_gradients_ = false;
  std::map<std::string, std::int64_t> snapshots_;  ///< steps by name
  std::string poison_;
  bool undefined_ = false;
};

class FakeSampler final : public train::Sampler {
 public:
  explicit FakeSampler(FakePlan& plan) : plan_(plan) { ++plan_.sources; }
  ~FakeSampler() override { --plan_.sources; }
  std::int64_t step() const override { return 7; }
  train::PromptLimits prompt_limits() const override { return plan_.limits(); }
  std::unique_ptr<train::Sample> begin_sample(
      const std::vector<train::SampleStart>& sequences) override {
    return std::make_unique<FakeSample>(plan_, sequences, 'A', false);
  }

 private:
  FakePlan& plan_;
};

class FakeFactory final : public RunFactory {
 public:
  FakeFactory(FakePlan& plan, int rank) : plan_(plan), rank_(rank) {}
  std::unique_ptr<train::Run> create(const v1::RunConfig&,
                                     const train::RunOptions& options) override {
    if (options.with_data) {
      plan_.on_create_job();
      return std::make_unique<FakeRun>(plan_, options, rank_ == 0);
    }
    return std::make_unique<FakeSteppedRun>(plan_, options, rank_ == 0);
  }

 private:
  FakePlan& plan_;
  int rank_;
};

/// Loads samplers for a SourceCache.
class FakeSourceLoader final : public SourceLoader {
 public:
  explicit FakeSourceLoader(FakePlan& plan) : plan_(plan) {}
  Loaded load(const std::filesystem::path& folder) override {
    if (!std::filesystem::exists(folder)) throw NotFound("no model in " + folder.string());
    std::this_thread::sleep_for(plan_.token_time);
    ++plan_.sources_made;
    return {{}, std::make_unique<FakeSampler>(plan_)};
  }

 private:
  FakePlan& plan_;
};

}  // namespace meshloom::control
