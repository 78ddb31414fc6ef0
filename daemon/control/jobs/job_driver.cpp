// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/job_driver.h"

#include <fmt/ranges.h>

#include "daemon/base/enum_names.h"
#include "daemon/control/jobs/job_attempt.h"
#include "daemon/control/jobs/resume_source.h"
#include "daemon/control/net/status.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/run.h"
#include "daemon/train/run_mesh.h"
#include "kernels/base/log.h"

namespace meshloom::control {

JobDriver::JobDriver(JobStore& store, Executor& executor, RanksTurn& turn, const StateDir& state,
                     std::filesystem::path data_dir, Admission& admission)
    : store_(store),
      executor_(executor),
      turn_(turn),
      state_(state),
      data_dir_(std::move(data_dir)),
      admission_(admission) {}

JobDriver::~JobDriver() {
  request_stop();
  join();
}

void JobDriver::start() {
  const std::lock_guard lock(thread_mutex_);
  if (stop_) return;
  thread_ = std::thread([this] { run(); });
}

void JobDriver::request_stop() {
  stop_ = true;
  store_.close();
}

void JobDriver::join() {
  const std::lock_guard lock(thread_mutex_);
  if (thread_.joinable()) thread_.join();
}

void JobDriver::note(const std::string& text) {
  std::string id;
  {
    const std::lock_guard lock(driven_mutex_);
    id = driven_;
  }
  if (!id.empty()) note_at(id, text);
}

void JobDriver::note_at(const std::string& id, const std::string& text) {
  try {
    store_.add_note(id, text);
  } catch (const Error& error) {
    spdlog::warn("job {}: a note is lost: {}", id, error.what());
  }
}

bool JobDriver::busy() const {
  const std::lock_guard lock(driven_mutex_);
  return !driven_.empty();
}

void JobDriver::drive(const std::string& id) {
  const std::lock_guard lock(driven_mutex_);
  driven_ = id;
}

void JobDriver::run() {
  while (!stop_ && !executor_.fatal()) {
    const auto id = store_.wait_for_job();
    if (!id || stop_) return;
    if (!take_turn(*id)) continue;
    drive(*id);
    try {
      run_job(*id);
    } catch (const std::exception& error) {
      spdlog::error("job {}: {}", *id, error.what());
    }
    drive("");
    turn_.release(job_resource(*id));
  }
}

bool JobDriver::take_turn(const std::string& id) {
  const std::string name = job_resource(id);
  const auto place = [&] {
    return store_.comes_first(id) ? RanksTurn::Place::kFirst : RanksTurn::Place::kLast;
  };
  const auto ahead = turn_.ahead_of(name, place());
  if (!ahead.empty())
    note_at(id, fmt::format("waits for the ranks behind {}", fmt::join(ahead, ", ")));
  // The job that is next may be cancelled, or another one may come before it meanwhile.
  const auto given_up = [&] { return stop_ || store_.next_job() != id; };
  return turn_.acquire(name, given_up, place);
}

bool JobDriver::fit_to_ranks(const std::string& id) {
  const v1::Job job = store_.get(id);
  std::optional<v1::RunConfig> config;
  try {
    config = admission_.refit(job);
  } catch (const train::NeedsOtherRanks& error) {
    spdlog::warn("job {} is held: it {}", id, error.what());
    store_.hold(id, v1::HOLD_CODE_NEEDS_OTHER_RANKS, error.what());
    return false;
  }
  if (!config) return true;
  const auto before = train::mesh_layout(job.resolved().mesh());
  const auto now = train::mesh_layout(config->mesh());
  const auto note = fmt::format("{} ranks have become {}: its mesh is {} now, it was {}",
                                before.size(), now.size(), to_string(now), to_string(before));
  spdlog::info("job {}: {}", id, note);
  store_.update(id, [&](v1::Job* changed) { *changed->mutable_resolved() = *config; });
  store_.add_note(id, note);
  return true;
}

void JobDriver::end_job(const std::string& id, v1::JobState end, const v1::ErrorDetails& details,
                        double ran_seconds) {
  store_.update(id, [&](v1::Job* changed) {
    changed->set_state(end);
    changed->clear_tokenizing();
    if (ran_seconds > 0) changed->set_ran_seconds(ran_seconds);
    if (end == v1::JOB_STATE_FAILED) *changed->mutable_error() = details;
    // A daemon that stops in good order is no sign of a job that takes it down.
    if (!executor_.fatal()) changed->set_stalled_attempts(0);
  });
  const v1::Job ended = store_.get(id);
  if (end == v1::JOB_STATE_RECOVERING && !executor_.fatal()) {
    spdlog::info("job {}: stopped at step {}, the next daemon goes on from step {}", id,
                 ended.step(), ended.checkpoint_step());
    return;
  }
  spdlog::info("job {}: {} at step {}{}", id,
               base::enum_spelling(*v1::JobState_descriptor()->FindValueByNumber(ended.state())),
               ended.step(), end == v1::JOB_STATE_FAILED ? ": " + details.message() : "");
}

void JobDriver::run_job(const std::string& id) {
  std::filesystem::path model, tokenizer;
  try {
    if (!fit_to_ranks(id)) return;
    const v1::RunConfig resolved = store_.get(id).resolved();
    model = admission_.model_folder(resolved);
    tokenizer = admission_.tokenizer_folder(resolved, model);
  } catch (...) {
    if (stop_) return;  // what a stop has interrupted says nothing about the job
    return end_job(id, v1::JOB_STATE_FAILED, to_details(std::current_exception()));
  }
  const v1::Job job = store_.begin_attempt(id);
  executor_.set_epoch(job.epoch());
  spdlog::info("job {} begins, attempt {}", id, job.attempt());
  v1::JobState end = v1::JOB_STATE_FAILED;
  v1::ErrorDetails details;
  double ran_seconds = 0;
  try {
    const JobFolders folders = {state_.job(id),
                                state_.checkpoints(id),
                                resume_folder(job.resolved(), state_, data_dir_),
                                data_dir_,
                                model,
                                tokenizer,
                                may_resume_older(job)};
    JobAttempt attempt(store_, executor_, admission_, job, folders, stop_);
    const AttemptEnd how = attempt.run();
    ran_seconds = attempt.ran_seconds();
    switch (how) {
      case AttemptEnd::kSucceeded: end = v1::JOB_STATE_SUCCEEDED; break;
      case AttemptEnd::kCancelled: end = v1::JOB_STATE_CANCELLED; break;
      case AttemptEnd::kPaused: end = v1::JOB_STATE_PAUSED; break;
      case AttemptEnd::kStopped: end = v1::JOB_STATE_RECOVERING; break;
    }
  } catch (...) {
    details = to_details(std::current_exception());
  }
  // A job is not to blame for a lost rank or a daemon that stops: a later start goes on from its
  // checkpoint.
  const auto fatal = executor_.fatal();
  if (end == v1::JOB_STATE_FAILED && (fatal || executor_.stopping())) {
    const std::string cause = fatal ? fatal->what() : details.message();
    store_.add_note(id, fmt::format("attempt {} ended: {}", job.attempt(), cause));
    end = v1::JOB_STATE_RECOVERING;
  }
  end_job(id, end, details, ran_seconds);
}

}  // namespace meshloom::control
