// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/job_attempt.h"

#include <algorithm>
#include <cmath>

#include "daemon/base/files.h"
#include "daemon/base/message_printer.h"
#include "daemon/control/jobs/chat_notes.h"
#include "daemon/control/jobs/disk_admission.h"
#include "daemon/control/jobs/evaluation.h"
#include "daemon/control/jobs/resume_source.h"
#include "daemon/control/ranks/rank_messages.h"
#include "daemon/control/stores/job_settings.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/config/micro_batch.h"
#include "daemon/train/config/resolve_services.h"
#include "daemon/train/config/validation_progress.h"
#include "daemon/train/files/hf_folder.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Clock = std::chrono::steady_clock;
using Cause = GoodputClock::Cause;

// Longer steps gain nothing from a second one in flight, which a stop would have to wait for.
constexpr std::chrono::milliseconds kShortStep{50};

constexpr std::chrono::seconds kBetweenProgress{1};  // of tokenizing

/// Returns the metrics of the job whose checkpoint `config` begins with; empty if it begins with no
/// job's.
std::filesystem::path metrics_before(const v1::RunConfig& config,
                                     const std::filesystem::path& resume_from) {
  if (!names_a_job(config.checkpoint().resume_from())) return {};
  return resume_from.parent_path().parent_path() / "metrics.jsonl";
}

void write_resolved(const std::filesystem::path& file, const v1::Job& job) {
  v1::JobSpec spec;
  spec.set_name(job.spec().name());
  *spec.mutable_run() = job.resolved();
  try {
    base::replace_file(file, base::to_yaml(spec), 0644);
  } catch (const Error& error) {
    spdlog::warn("job {}: {}", job.spec().name(), error.what());
  }
}

}  // namespace

JobAttempt::JobAttempt(JobStore& store, Executor& executor, ConfigResolver& resolver,
                       Tokenization& tokenization, const v1::Job& job, std::filesystem::path folder,
                       train::RunFolders folders, const train::WorldDevices& devices,
                       const std::atomic<bool>& stop)
    : store_(store),
      executor_(executor),
      resolver_(resolver),
      tokenization_(tokenization),
      job_(job),
      id_(parse_job_name(job.name())),
      run_(executor, id_),
      config_(job_.resolved()),
      folder_(std::move(folder)),
      folders_(std::move(folders)),
      devices_(devices),
      stop_(stop),
      record_(store, job_, folder_) {}

JobAttempt::~JobAttempt() {
  delete_run();
  try {
    const bool lost = saved_ < done_ && !ends_at(done_);
    GoodputClock& clock = record_.clock();
    store_.set_goodput(id_, lost ? clock.now_without_lost_steps() : clock.now());
  } catch (const std::exception& error) {
    spdlog::warn("job {}: where its time went is not known: {}", id_, error.what());
  }
}

void JobAttempt::delete_run() noexcept {
  if (!run_exists_) return;
  run_exists_ = false;
  try {
    run_.remove().get();
  } catch (const std::exception& error) {
    spdlog::warn("job {}: its run was not deleted: {}", id_, error.what());
  }
}

double JobAttempt::ran_seconds() const {
  return job_.ran_seconds() + std::chrono::duration<double>(Clock::now() - begin_).count();
}

bool JobAttempt::time_is_up() const {
  return time_limit_ > 0 && ran_seconds() >= static_cast<double>(time_limit_);
}

bool JobAttempt::interrupted() const {
  return stop_ || store_.cancel_requested(id_) || store_.pause_requested(id_) || time_is_up();
}

AttemptEnd JobAttempt::interrupted_end(bool cancelled, bool paused) const {
  if (cancelled) return AttemptEnd::kCancelled;
  if (paused) return AttemptEnd::kPaused;
  if (stop_) return AttemptEnd::kStopped;
  throw DeadlineExceeded(
      fmt::format("time_limit_seconds: the job has had the ranks for {} s; saved at step {} of {}",
                  time_limit_, saved_, end_),
      "TIME_LIMIT", {{"field", "time_limit_seconds"}, {"step", std::to_string(saved_)}});
}

AttemptEnd JobAttempt::run() {
  if (!prepare()) return interrupted_end(store_.cancel_requested(id_), !stop_ && !time_is_up());
  try {
    const AttemptEnd end = train_to_end();
    if (end == AttemptEnd::kSucceeded) record_.end(v1::JOB_STATE_SUCCEEDED);
    if (end == AttemptEnd::kCancelled) record_.end(v1::JOB_STATE_CANCELLED);
    return end;
  } catch (const Error& error) {
    const bool ends_daemon = executor_.fatal() || executor_.stopping();
    if (executor_.fatal() || !ends_at(done_) || error.reason() != kDiskFull) {
      if (!ends_daemon) record_.end(v1::JOB_STATE_FAILED, &error);
      throw;
    }
    return hold_without_space(error);
  }
}

AttemptEnd JobAttempt::train_to_end() {
  while (true) {
    if (validation_missing_) evaluate();
    train();
    if (ends_at(done_) && !validation_missing_) {
      if (saves(done_)) save_step();
      succeed();
      return AttemptEnd::kSucceeded;
    }
    const bool paused = store_.pause_requested(id_);
    const bool cancelled = store_.cancel_requested(id_);
    const bool saved = saved_ >= done_ || save_last();
    if (!paused || saved || stop_ || cancelled || time_is_up()) {
      delete_run();
      return interrupted_end(cancelled, paused);
    }
    store_.pause_failed(id_, "it could not be saved and goes on, it is not paused");
  }
}

void JobAttempt::succeed() {
  const GoodputClock::During during(record_.clock(), Cause::kSave);
  if (const std::int64_t steps = config_.training().steps(); stopped_early_.empty() && end_ < steps)
    record_.note(fmt::format("its step limit ends it at step {} of {}", end_, steps));
  const std::string& exported = config_.export_().hf_folder();
  if (!exported.empty()) {
    const auto folder = folder_ / exported;
    export_model(folder);
    store_.update(id_, [&](v1::Job* job) { job->set_hf_folder(folder.string()); });
  }
  const v1::SampleConfig& sample = config_.sample();
  if (JobSamples::any(sample)) {
    const GoodputClock::During drawing(record_.clock(), Cause::kSample);
    const JobSamples::Drawn drawn =
        job_samples().draw(done_, [this] { return stop_ || store_.cancel_requested(id_); });
    if (!drawn.whole)
      record_.note("its sample is short: the daemon was stopped or the job cancelled meanwhile");
    note_cut(drawn);
    if (sample.interval() > 0 || !sample.prompts().empty()) record_.samples(drawn.samples);
    store_.update(id_, [&](v1::Job* job) {
      job->set_sample(drawn.samples.front().text());
      job->mutable_samples()->Assign(drawn.samples.begin(), drawn.samples.end());
    });
  }
  if (saved_ < done_)
    record_.note(fmt::format(
        "no checkpoint of its last step, {}: run.checkpoint.last is false. Its weights are {}; {}",
        done_, exported.empty() ? "lost" : fmt::format("in the export {} alone", exported),
        saved_ > 0 ? fmt::format("the newest checkpoint is of step {}", saved_)
                   : std::string("there is no checkpoint")));
  delete_run();
}

void JobAttempt::export_model(const std::filesystem::path& folder) {
  const std::string& dtype = config_.export_().dtype();
  try {
    run_.export_hf(folder, dtype).get();
  } catch (const Error& error) {
    if (error.reason() != train::kValueOverflows) throw;
    // What was trained is not lost for a dtype that was chosen before.
    record_.note(fmt::format("the export is in float32, not in {}: {}", dtype, error.what()));
    run_.export_hf(folder, "float32").get();
  }
}

void JobAttempt::go_by(const JobStore::StepOrder& order, std::int64_t step) {
  time_limit_ = order.time_limit_seconds;
  const v1::JobSettings now = settings_for(order.config->resolved, order.config->edits, step);
  edited_ = !order.config->edits.empty();
  if (edited_ && now.SerializeAsString() != settings_of(config_).SerializeAsString()) {
    // What follows the steps before goes by the settings before: nothing, or they would not be in
    // flight still.
    while (!in_flight_.empty()) finish_step();
    const v1::RunConfig before = config_;
    apply_settings(now, &config_);
    course_->edit(now);
    spdlog::info("job {}: goes by edited settings from step {} on", id_, step);
    if (train::follow_edit(before, config_, &progress_) && config_.training().has_early_stopping())
      record_.note(
          fmt::format("early stopping begins anew: since step {} it counts by other losses", step));
  }
  end_ = end_step(now, order.step_limit);
}

bool JobAttempt::tokenize(v1::CreateRunCommand* create) {
  const GoodputClock::During during(record_.clock(), Cause::kTokenize);
  struct Interrupted {};
  Clock::time_point published;
  const auto progress = [&](const std::string& field, std::uint64_t bytes, std::uint64_t total) {
    if (interrupted()) throw Interrupted();
    if (bytes == 0 || (bytes < total && Clock::now() < published + kBetweenProgress)) return;
    published = Clock::now();
    v1::TokenizeProgress done;
    done.set_field(field);
    done.set_bytes(static_cast<std::int64_t>(bytes));
    done.set_total_bytes(static_cast<std::int64_t>(total));
    store_.publish_tokenizing(id_, done);
  };
  try {
    const train::TokenizedText text =
        tokenization_.tokenize(config_, folders_.model, folders_.tokenizer, progress);
    set_tokenized(text, create);
    text_ = text.made_of;
    chat_template_ = text.chat_template;
    return true;
  } catch (const Interrupted&) {
    return false;
  }
}

void JobAttempt::note_choices() {
  const v1::RunConfig& given = job_.spec().run();
  if (train::dtype_is_auto(given.plan())) record_.note(train::dtype_note(config_, devices_));
  const std::int64_t samples = config_.training().micro_batch_size();
  const std::int64_t share = train::rank_share(config_);
  if (!given.training().has_micro_batch_size() && samples > 0 && samples < share)
    record_.note(fmt::format("a rank computes {} of its {} samples at once{}", samples, share,
                             config_.checkpoint().resume_from().empty()
                                 ? ": all of them would not fit the memory"
                                 : ", to fit the memory or as it did before the checkpoint"));
  for (const auto& [field, summary] : text_)
    if (summary.replaced_documents > 0)
      record_.note(
          fmt::format("{}: {} of {} documents {} bytes that are no UTF-8, or halves of surrogate "
                      "pairs: U+FFFD was read for them",
                      field, summary.replaced_documents, summary.documents,
                      summary.replaced_documents == 1 ? "has" : "have"));
  for (const auto& [field, summary] : text_)
    if (summary.skipped_lines > 0)
      record_.note(fmt::format(
          "{}: {} left out that {} no text under \"{}\", beside {} documents", field,
          summary.skipped_lines == 1 ? std::string("1 line was")
                                     : fmt::format("{} lines were", summary.skipped_lines),
          summary.skipped_lines == 1 ? "holds" : "hold", config_.data().field(),
          summary.documents));
}

double JobAttempt::peak_flops() {
  if (config_.training().has_peak_flops()) return config_.training().peak_flops();
  const double measured = resolver_.measured_peak_flops(config_);
  const std::string note =
      fmt::format("mfu is a share of {:.4g} operations a second of a rank, as measured", measured);
  const auto& notes = job_.notes();
  if (measured > 0.0 && std::find(notes.begin(), notes.end(), note) == notes.end())
    record_.note(note);
  return measured;
}

v1::JobData JobAttempt::job_data(const v1::CreateRunResult& created) const {
  v1::JobData data;
  data.set_tokens(created.data_tokens());
  data.set_samples(created.training_samples());
  for (const auto& [field, summary] : text_) {
    if (field != "run.data.path") continue;
    data.set_bytes(static_cast<std::int64_t>(summary.bytes));
    data.set_documents(summary.documents);
    data.set_replaced_documents(summary.replaced_documents);
    data.set_skipped_lines(summary.skipped_lines);
    if (config_.data().has_chat())
      *data.mutable_chat() = chat_data(config_.data().chat(), chat_template_, summary);
  }
  if (created.has_chat()) data.mutable_chat()->MergeFrom(created.chat());
  return data;
}

bool JobAttempt::prepare() {
  std::filesystem::create_directories(folders_.checkpoints);
  write_resolved(folder_ / "resolved.yaml", job_);
  v1::CreateRunCommand create;
  *create.mutable_config() = config_;
  set_folders(folders_, create.mutable_folders());
  create.set_with_data(true);
  create.set_allow_fallback(config_.checkpoint().fallback());
  if (!tokenize(&create)) return false;
  run_exists_ = true;
  if (job_.attempt() == 1) note_choices();
  const v1::CreateRunResult created = run_.create(std::move(create)).get();
  submitted_ = done_ = saved_ = created.step_count();
  course_.emplace(config_,
                  train::JobCourse::Begin{done_,
                                          to_progress(created.job()),
                                          {created.flops_per_token(), created.flops_per_pair()},
                                          peak_flops()});
  record_.begin(done_, ran_seconds(), metrics_before(config_, folders_.resume_from),
                created.plan());
  for (const auto& note : created.notes()) record_.note(note);
  const v1::JobData data = job_data(created);
  if (job_.attempt() == 1)
    for (const auto& note : chat_notes(data.chat(), config_.training().seq_len(), "run.data.path"))
      record_.note(note);
  if (done_ > 0) record_.note(fmt::format("goes on from the checkpoint of step {}", done_));
  // What follows the last step goes by the settings of that step, as the counts so far do.
  go_by(store_.begin_step(id_, done_), done_);
  progress_ = created.job().validation();
  store_.update(id_, [&](v1::Job* job) {
    job->set_state(v1::JOB_STATE_RUNNING);
    job->set_step(done_);
    job->set_checkpoint_step(done_);
    job->set_vocab_size(created.vocab_size());
    job->set_plan(created.plan());
    job->clear_tokenizing();
    *job->mutable_data() = data;
  });
  stop_early();
  // One that a stop has interrupted is made up for.
  validation_missing_ = validates(done_) && record_.last_validation() < done_;
  return true;
}

bool JobAttempt::validates(std::int64_t step) const {
  const std::int64_t interval = config_.validation().interval();
  return interval > 0 && (step == end_ || step % interval == 0);
}

bool JobAttempt::saves(std::int64_t step) const {
  if (step <= saved_) return false;
  const v1::CheckpointConfig& checkpoint = config_.checkpoint();
  // One of the best was tried to be saved at once, and the same step is not tried again.
  if (checkpoint.interval() > 0 && step % checkpoint.interval() == 0 && step != not_saved_)
    return true;
  return ends_at(step) && train::saves_last(checkpoint);
}

bool JobAttempt::samples(std::int64_t step) const {
  const std::int64_t interval = config_.sample().interval();
  // At the end there is a sample anyway.
  return interval > 0 && !ends_at(step) && step % interval == 0;
}

bool JobAttempt::may_submit() const {
  if (ends_at(submitted_) || interrupted()) return false;
  if (in_flight_.empty()) return true;
  // What follows a step comes before the next one.
  const std::int64_t last = in_flight_.back().step;
  return in_flight_.size() == 1 && step_time_ < kShortStep && !validates(last) && !saves(last) &&
         !samples(last);
}

void JobAttempt::train() {
  const GoodputClock::During during(record_.clock(), Cause::kProductive);
  while (!ends_at(done_)) {
    while (may_submit()) {
      // Nobody can edit what this step goes by, or whether there is one, from here on.
      go_by(store_.begin_step(id_, submitted_ + 1), submitted_ + 1);
      const train::JobCourse::Step next = course_->next();
      const RunClient::Step verbs = run_.step(next.batch, next.update);
      in_flight_.push_back({++submitted_, verbs});
    }
    if (in_flight_.empty()) return;
    finish_step();
  }
}

void JobAttempt::finish_step() {
  const StepInFlight step = in_flight_.front();
  in_flight_.pop_front();
  const auto begin = Clock::now();
  const v1::DataLoss batch = step.verbs.forward_backward.get();
  const v1::ApplyGradientsResult result = step.verbs.optim_step.get();
  trained_until_ = Clock::now();
  step_time_ = trained_until_ - begin;
  done_ = step.step;
  const train::StepOutput output = {result.output(),
                                    result.step_seconds(),
                                    std::nullopt,
                                    {result.seconds().begin(), result.seconds().end()},
                                    {result.collectives().begin(), result.collectives().end()}};
  v1::StepMetrics metrics = course_->done(
      {batch.tokens(), batch.work_tokens(), batch.attention_pairs(), batch.labels(), batch.bytes()},
      output);
  metrics.set_memory_bytes(result.memory_bytes());
  if (record_.step(std::move(metrics), output.phase_seconds)) store_.cancel(id_, {});
  note_busy_host(result);
  if (validates(done_)) evaluate();
  if (saves(done_)) save_step();
  if (samples(done_)) draw_samples();
}

void JobAttempt::note_busy_host(const v1::ApplyGradientsResult& step) {
  if (!step.has_core_times()) return;
  const auto finding =
      busy_host_.add(step.step_seconds(), {step.core_times().ran(), step.core_times().waited()});
  if (!finding) return;
  const auto notes = store_.get(id_).notes();
  if (std::none_of(notes.begin(), notes.end(),
                   [](const std::string& note) { return note.starts_with(kBusyHost); }))
    record_.note(busy_host_note(*finding));
}

void JobAttempt::evaluate() {
  const GoodputClock::During during(record_.clock(), Cause::kValidation);
  validation_missing_ = true;
  v1::ValidationMetrics metrics;
  metrics.set_step(done_);
  // Of the job's own validation data, or of a set: their messages have the same fields.
  const auto tell = [](const std::vector<train::LossSum>& losses, auto& published) {
    published.set_loss(train::mean_loss(losses));
    published.set_perplexity(std::exp(published.loss()));
    if (const auto bits = train::bits_per_byte(losses)) published.set_bits_per_byte(*bits);
  };
  const auto losses = evaluate_set("");
  if (!losses) return;
  tell(*losses, metrics);
  for (const v1::ValidationSet& set : config_.validation().sets()) {
    const auto of_set = evaluate_set(set.name());
    if (!of_set) return;
    v1::SetLoss& published = *metrics.add_sets();
    published.set_set(set.name());
    tell(*of_set, published);
  }
  record_.validation(metrics);
  train::count_validation(config_, metrics, &progress_);
  validation_ = std::move(metrics);
  stop_early();
  v1::ValidationProgress with_it = progress_;
  if (train::add_best(config_, *validation_, &with_it)) save_step();
  validation_missing_ = false;
}

std::optional<std::vector<train::LossSum>> JobAttempt::evaluate_set(const std::string& set) {
  EvaluationParts parts(run_, config_.validation().steps(), set);
  std::vector<train::LossSum> losses;
  while (!parts.done()) {
    if (interrupted()) return std::nullopt;
    const v1::DataLoss part = parts.next();
    trained_until_ = Clock::now();
    for (const v1::BatchLoss& batch : part.losses())
      losses.push_back({batch.loss(), batch.labels(), batch.bytes()});
  }
  return losses;
}

void JobAttempt::stop_early() {
  if (ends_at(done_)) return;
  stopped_early_ = train::early_stop_reason(config_, progress_);
  if (stopped_early_.empty()) return;
  const std::string why = fmt::format("{}; it ends at step {} of {}", stopped_early_, done_,
                                      config_.training().steps());
  store_.update(id_, [&](v1::Job* job) { job->set_stopped_early(why); });
  record_.note(why);
}

const JobSamples& JobAttempt::job_samples() {
  if (samples_) return *samples_;
  samples_ =
      std::make_unique<JobSamples>(run_, config_.sample(), tokenization_.prompt_limits(config_));
  return *samples_;
}

void JobAttempt::note_cut(const JobSamples::Drawn& drawn) {
  if (!drawn.cut) return;
  const std::string note =
      fmt::format("samples are cut: the {} of a job are told in {} bytes at most",
                  drawn.samples.size(), kMostSampleBytes);
  const auto notes = store_.get(id_).notes();
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) record_.note(note);
}

void JobAttempt::draw_samples() {
  const GoodputClock::During during(record_.clock(), Cause::kSample);
  try {
    const JobSamples::Drawn drawn = job_samples().draw(done_, [this] { return interrupted(); });
    if (drawn.whole) {
      note_cut(drawn);
      record_.samples(drawn.samples);
    }
  } catch (const Error& error) {
    if (executor_.fatal()) throw;
    record_.note(fmt::format("the samples of step {} could not be drawn, training goes on: {}",
                             done_, error.what()));
  }
}

}  // namespace meshloom::control
