// SPDX-License-Identifier: Apache-2.0
// JobAttempt's saves: between steps, at the end, and what becomes of those that fail.
#include "daemon/control/jobs/disk_admission.h"
#include "daemon/control/jobs/job_attempt.h"
#include "daemon/control/ranks/rank_messages.h"
#include "daemon/train/config/validation_progress.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

AttemptEnd JobAttempt::hold_without_space(const Error& error) {
  hold_reason_ = fmt::format(
      "{}: at its last step, {}, the disk was full ({}). Make room, then `meshloom job release "
      "{}`: it goes on {}",
      kNoSpace, done_, error.what(), id_,
      saved_ > 0 ? fmt::format("from its checkpoint of step {}", saved_)
                 : std::string("from its first step, for there is no checkpoint"));
  spdlog::error("job {}: {}", id_, hold_reason_);
  delete_run();
  return AttemptEnd::kHeld;
}

void JobAttempt::save_step() {
  try {
    save();
  } catch (const Error& error) {
    if (executor_.fatal()) throw;
    const bool first = store_.get(id_).failed_saves() == 0;
    count_failed_save(error);
    if (ends_at(done_)) throw;
    not_saved_ = done_;
    spdlog::error("job {}: checkpoint of step {} failed: {}", id_, done_, error.what());
    if (first)
      store_.add_note(id_, fmt::format("the checkpoint of step {} failed, training goes on; "
                                       "further failures are counted alone: {}",
                                       done_, error.what()));
  }
}

void JobAttempt::count_failed_save(const Error& error) {
  ++failed_saves_;
  store_.update(id_, [&](v1::Job* job) {
    job->set_failed_saves(job->failed_saves() + 1);
    job->set_save_failure(fmt::format("step {}: {}", done_, error.what()));
  });
}

void JobAttempt::note_failed_saves() {
  if (failed_saves_ > 1)
    record_.note(fmt::format("saved again at step {}: {} checkpoints before it failed", done_,
                             failed_saves_));
  failed_saves_ = 0;
}

v1::WriteStateResult JobAttempt::save() {
  const GoodputClock::During during(record_.clock(), GoodputClock::Cause::kSave);
  v1::ValidationProgress progress = progress_;
  if (validation_ && validation_->step() == done_)
    train::add_best(config_, *validation_, &progress);
  v1::WriteStateCommand command;
  *command.mutable_job() = to_message(course_->progress(progress));
  command.mutable_job()->set_keep_latest_k(config_.checkpoint().keep_latest_k());
  if (edited_) *command.mutable_job()->mutable_edited_config() = config_;
  v1::WriteStateResult result = run_.write_state(std::move(command)).get();
  // What could not be saved is none of the best.
  progress_ = std::move(progress);
  saved_ = done_;
  record_.clock().saved();
  store_.checkpoint_saved(id_, saved_, ran_seconds(), record_.clock().now());
  note_failed_saves();
  return result;
}

bool JobAttempt::save_last() {
  double save = 0;
  try {
    save = this->save().seconds();
  } catch (const Error& error) {
    if (executor_.fatal()) throw;
    // An older checkpoint is worth more than a failed job: a disk that is full may be so because of
    // others.
    spdlog::error("job {}: the last checkpoint, of step {}, failed: {}", id_, done_, error.what());
    count_failed_save(error);
    store_.add_note(id_, fmt::format("the last checkpoint, of step {}, could not be saved, that of "
                                     "step {} is the newest: {}",
                                     done_, saved_, error.what()));
    return false;
  }
  const std::chrono::duration<double> stop = Clock::now() - trained_until_;
  record_.note(
      fmt::format("saved at step {} in {:.2f} s, begun {:.3f} s after the ranks last trained",
                  done_, save, stop.count() - save));
  return true;
}

}  // namespace meshloom::control
