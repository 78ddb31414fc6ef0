// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/job_attempt.h"

#include <algorithm>
#include <fstream>

#include "daemon/base/message_printer.h"
#include "daemon/control/byte_text.h"
#include "daemon/control/names.h"
#include "daemon/train/checkpoint/hf_byte_tokenizer.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShortStep =
    0.5;  // seconds; longer steps gain nothing from a second one in flight

v1::RankCommand forward_backward(const std::string& run) {
  v1::RankCommand command;
  command.mutable_forward_backward()->set_run(run);
  return command;
}

v1::RankCommand optim_step(const std::string& run) {
  v1::RankCommand command;
  command.mutable_optim_step()->set_run(run);
  return command;
}

v1::RankCommand evaluate(const std::string& run, std::int64_t batches) {
  v1::RankCommand command;
  command.mutable_evaluate()->set_run(run);
  command.mutable_evaluate()->set_batches(batches);
  return command;
}

v1::RankCommand save_state(const std::string& run) {
  v1::RankCommand command;
  command.mutable_save_state()->set_run(run);
  return command;
}

void write_resolved(const std::filesystem::path& file, const v1::Job& job) {
  v1::JobSpec spec;
  spec.set_name(job.spec().name());
  *spec.mutable_run() = job.resolved();
  std::ofstream out(file, std::ios::trunc);
  out << base::to_yaml(spec);
}

}  // namespace

JobAttempt::JobAttempt(JobStore& store, Executor& executor, const v1::Job& job, JobFolders folders,
                       const std::atomic<bool>& stop)
    : store_(store),
      executor_(executor),
      job_(job),
      id_(parse_job_name(job.name())),
      config_(job_.resolved()),
      folders_(std::move(folders)),
      stop_(stop) {}

JobAttempt::~JobAttempt() { delete_run(); }

void JobAttempt::delete_run() noexcept {
  if (!run_exists_) return;
  run_exists_ = false;
  try {
    v1::RankCommand command;
    command.mutable_delete_run()->set_run(id_);
    executor_.run(std::move(command));
  } catch (const std::exception& error) {
    spdlog::warn("job {}: its run was not deleted: {}", id_, error.what());
  }
}

bool JobAttempt::interrupted() const { return stop_ || store_.cancel_requested(id_); }

AttemptEnd JobAttempt::run() {
  prepare();
  train();
  const bool complete = done_ >= config_.training().steps();
  if (complete) {
    write_export();
    write_sample();
    delete_run();
    return AttemptEnd::kSucceeded;
  }
  const bool cancelled = store_.cancel_requested(id_);
  if (saved_ < done_) save_last();
  delete_run();
  return cancelled ? AttemptEnd::kCancelled : AttemptEnd::kStopped;
}

void JobAttempt::prepare() {
  std::filesystem::create_directories(folders_.checkpoints);
  write_resolved(folders_.job / "resolved.yaml", job_);
  v1::RankCommand command;
  auto& create = *command.mutable_create_run();
  create.set_run(id_);
  *create.mutable_config() = config_;
  create.set_data_dir(folders_.data_dir.string());
  create.set_checkpoint_dir(folders_.checkpoints.string());
  create.set_resume_from(folders_.resume_from.string());
  create.set_resume_older(folders_.resume_older);
  create.set_allow_fallback(config_.checkpoint().fallback());
  create.set_epoch(job_.epoch());
  run_exists_ = true;
  const v1::RankResult created = executor_.run(std::move(command));
  vocab_size_ = created.vocab_size();
  submitted_ = done_ = saved_ = created.step_count();
  metrics_ = std::make_unique<base::MetricsLog>(folders_.job / "metrics.jsonl", done_);
  for (const auto& note : created.notes()) add_note(note);
  if (done_ > 0) add_note(fmt::format("goes on from the checkpoint of step {}", done_));
  store_.update(id_, [&](v1::Job* job) {
    job->set_state(v1::JOB_STATE_RUNNING);
    job->set_step(done_);
    job->set_checkpoint_step(done_);
    job->set_vocab_size(vocab_size_);
    job->set_plan(created.plan());
  });
  if (done_ == 0 && config_.validation().interval() > 0)
    record_validation(0, executor_.run(evaluate(id_, config_.validation().steps())).loss());
}

void JobAttempt::add_note(const std::string& note) {
  spdlog::info("job {}: {}", id_, note);
  store_.add_note(id_, note);
}

std::size_t JobAttempt::steps_in_flight() const { return step_seconds_ < kShortStep ? 2 : 1; }

void JobAttempt::train() {
  const std::int64_t steps = config_.training().steps();
  while (done_ < steps) {
    while (in_flight_.size() < steps_in_flight() && submitted_ < steps && !interrupted())
      submit_step();
    if (in_flight_.empty()) return;
    finish_step();
  }
}

void JobAttempt::submit_step() {
  StepInFlight step;
  step.step = ++submitted_;
  const bool last = step.step == config_.training().steps();
  const auto every = [&](std::int64_t interval) {
    return interval > 0 && (last || step.step % interval == 0);
  };
  step.forward_backward = executor_.submit(forward_backward(id_));
  step.optim_step = executor_.submit(optim_step(id_));
  if (every(config_.validation().interval()))
    step.evaluate = executor_.submit(evaluate(id_, config_.validation().steps()));
  if (last || every(config_.checkpoint().interval()))
    step.save_state = executor_.submit(save_state(id_));
  in_flight_.push_back(std::move(step));
}

void JobAttempt::finish_step() {
  const StepInFlight step = in_flight_.front();
  in_flight_.pop_front();
  const auto begin = Clock::now();
  executor_.wait(step.forward_backward);
  const v1::RankResult result = executor_.wait(step.optim_step);
  step_seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
  done_ = step.step;
  v1::StepMetrics metrics = result.step();
  metrics.set_memory_bytes(std::max(metrics.memory_bytes(), result.peak_memory_bytes()));
  metrics_->step(metrics, {result.seconds().begin(), result.seconds().end()});
  store_.publish_step(id_, metrics);
  if (step.evaluate) record_validation(step.step, executor_.wait(step.evaluate).loss());
  if (!step.save_state) return;
  try {
    executor_.wait(step.save_state);
    checkpoint_saved();
  } catch (const Error& error) {
    if (executor_.fatal() || step.step == config_.training().steps()) throw;
    save_failed(error);
  }
}

void JobAttempt::save_last() {
  try {
    executor_.run(save_state(id_));
  } catch (const Error& error) {
    if (executor_.fatal()) throw;
    // An older checkpoint is worth more than a failed job: a disk that is full may be so because of
    // others.
    spdlog::error("job {}: the last checkpoint, of step {}, failed: {}", id_, done_, error.what());
    store_.add_note(id_, fmt::format("the last checkpoint, of step {}, could not be saved, that of "
                                     "step {} is the newest: {}",
                                     done_, saved_, error.what()));
    return;
  }
  checkpoint_saved();
  store_.add_note(id_, fmt::format("saved at step {}", done_));
}

void JobAttempt::checkpoint_saved() {
  saved_ = done_;
  store_.checkpoint_saved(id_, saved_);
}

void JobAttempt::save_failed(const Error& error) {
  spdlog::error("job {}: checkpoint of step {} failed: {}", id_, done_, error.what());
  store_.add_note(id_, fmt::format("the checkpoint of step {} failed, training goes on: {}", done_,
                                   error.what()));
}

void JobAttempt::record_validation(std::int64_t step, double loss) {
  v1::ValidationMetrics validation;
  validation.set_step(step);
  validation.set_loss(loss);
  metrics_->validation(validation);
  store_.publish_validation(id_, validation);
}

void JobAttempt::write_export() {
  if (config_.export_().hf_folder().empty()) return;
  const auto folder = folders_.job / config_.export_().hf_folder();
  v1::RankCommand command;
  command.mutable_export_()->set_run(id_);
  command.mutable_export_()->set_folder(folder.string());
  command.mutable_export_()->set_dtype(config_.export_().dtype());
  executor_.run(std::move(command));
  store_.update(id_, [&](v1::Job* job) { job->set_hf_folder(folder.string()); });
}

void JobAttempt::write_sample() {
  const auto& sample = config_.sample();
  if (sample.prompt().empty() && sample.token_ids_size() == 0) return;
  v1::RankCommand command;
  auto& verb = *command.mutable_sample();
  verb.set_run(id_);
  verb.set_prompt(sample.prompt());
  *verb.mutable_token_ids() = sample.token_ids();
  *verb.mutable_params() = sample.params();
  ByteText text;
  std::string shown = sample.prompt();
  std::string ids;
  executor_.run(std::move(command), [&](std::int64_t token) {
    if (vocab_size_ == train::kByteVocabulary)
      shown += text.append(static_cast<unsigned char>(token));
    ids += fmt::format("{}{}", ids.empty() ? "" : " ", token);
    return true;
  });
  shown += text.finish();
  store_.update(id_, [&](v1::Job* job) {
    job->set_sample(vocab_size_ == train::kByteVocabulary ? shown : ids);
  });
}

}  // namespace meshloom::control
