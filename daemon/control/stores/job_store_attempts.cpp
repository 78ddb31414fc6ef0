// SPDX-License-Identifier: Apache-2.0
// JobStore for the driver: which job is next, its attempts, and what happens in them.
#include "daemon/control/host/timestamp.h"
#include "daemon/control/stores/job_state.h"
#include "daemon/control/stores/job_store.h"
#include "kernels/base/error.h"

namespace meshloom::control {

std::optional<std::string> JobStore::wait_for_job() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (const JobEntry* next = first_waiting()) return next->id();
    changed_.wait(lock);
  }
  return std::nullopt;
}

std::optional<std::string> JobStore::next_job() const {
  const std::lock_guard lock(mutex_);
  const JobEntry* next = closed_ ? nullptr : first_waiting();
  return next ? std::optional(next->id()) : std::nullopt;
}

const JobEntry* JobStore::first_waiting() const {
  const JobEntry* next = nullptr;
  for (const auto& [number, item] : unfinished_) {
    if (item->waits || item->active) continue;
    if (!next || item->job.stalled_attempts() < next->job.stalled_attempts()) next = item;
  }
  return next;
}

v1::Job JobStore::begin_attempt(const std::string& id) {
  Ledger::Ticket ticket = 0;
  v1::Job begun;
  {
    Change locked(*this);
    changed_.wait(locked.lock(), [&] { return closed_ || ledger_.can_give_epoch(); });
    if (!ledger_.can_give_epoch())
      throw Unavailable("the daemon is stopping and the journal cannot be written", "STOPPING");
    JobEntry& target = entry(id);
    check_internal(can_move(target.job.state(), v1::JOB_STATE_PREPARING),
                   "job {} cannot begin in state {}", id, static_cast<int>(target.job.state()));
    for (const std::string& old : just_ended_)
      if (const auto found = by_id_.find(old); found != by_id_.end())
        found->second->forget_events();
    just_ended_.clear();
    target.active = true;
    target.hold_back();
    target.job.set_state(v1::JOB_STATE_PREPARING);
    target.job.set_epoch(ledger_.give_epoch());
    target.job.set_attempt(target.job.attempt() + 1);
    target.job.set_stalled_attempts(target.job.stalled_attempts() + 1);
    ticket = save(target);
    add_job_event(target, ticket);
    begun = target.job;
    put_config(target.config, &begun);
  }
  ledger_.wait(ticket);
  return begun;
}

void JobStore::hold(const std::string& id, v1::HoldCode code, const std::string& reason) {
  Ledger::Ticket ticket = 0;
  {
    const Change locked(*this);
    JobEntry& target = entry(id);
    if (!can_move(target.job.state(), v1::JOB_STATE_HELD)) return;
    target.hold_back();
    target.waits = true;
    target.job.set_state(v1::JOB_STATE_HELD);
    target.job.set_hold_code(code);
    target.job.set_hold_reason(reason);
    ticket = save(target);
    add_job_event(target, ticket);
  }
  ledger_.wait(ticket);
}

void JobStore::update(const std::string& id, const std::function<void(v1::Job*)>& change) {
  Ledger::Ticket ticket = 0;
  {
    const Change locked(*this);
    JobEntry& target = entry(id);
    const v1::JobState before = target.job.state();
    v1::Job job = target.job;
    change(&job);
    if (before == v1::JOB_STATE_CANCELLING) {
      // A cancellation that came meanwhile stays.
      if (job.state() == v1::JOB_STATE_RUNNING) job.set_state(before);
      if (job.state() == v1::JOB_STATE_RECOVERING) job.set_state(v1::JOB_STATE_CANCELLED);
    }
    check_internal(job.state() == before || can_move(before, job.state()),
                   "job {} cannot move from state {} to {}", id, static_cast<int>(before),
                   static_cast<int>(job.state()));
    target.hold_back();
    target.job = std::move(job);
    const bool other_config = target.job.has_resolved();
    if (other_config) {
      auto config = std::make_shared<JobConfig>(*target.config);
      config->resolved.Swap(target.job.mutable_resolved());
      target.job.clear_resolved();
      target.config = std::move(config);
    }
    if (is_final(target.job.state()) && !is_final(before)) ended(target);
    if (is_final(target.job.state()) || target.job.state() == v1::JOB_STATE_RECOVERING)
      target.active = false;
    v1::JournalRecord record = state_record(target);
    if (other_config) {
      record.mutable_job()->Swap(record.mutable_state());
      record.clear_state();
      put_config(target.config, record.mutable_job());
    }
    ticket = ledger_.append(std::move(record));
    add_job_event(target, ticket);
  }
  ledger_.wait(ticket);
}

void JobStore::ended(JobEntry& entry) {
  entry.job.set_finish_time(now_rfc3339());
  unfinished_.erase(entry.number);
  just_ended_.push_back(entry.id());
  detailed_.insert(entry.number);
}

void JobStore::publish_step(const std::string& id, const v1::StepMetrics& step) {
  const Change locked(*this);
  JobEntry& target = entry(id);
  const bool first = target.job.stalled_attempts() > 0;
  const bool save_it = first || target.job.revision() >= target.reserved_revision;
  if (save_it) target.hold_back();
  target.job.set_step(step.step());
  *target.job.mutable_last_step() = step;
  target.job.set_stalled_attempts(0);
  v1::JobEvent event;
  *event.mutable_step() = step;
  add_event(target, std::move(event), save_it ? save(target) : 0);
}

void JobStore::publish_validation(const std::string& id, const v1::ValidationMetrics& validation) {
  const Change locked(*this);
  JobEntry& target = entry(id);
  if (!target.job.has_first_validation()) *target.job.mutable_first_validation() = validation;
  *target.job.mutable_last_validation() = validation;
  v1::JobEvent event;
  *event.mutable_validation() = validation;
  add_event(target, std::move(event), 0);
}

void JobStore::checkpoint_saved(const std::string& id, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  JobEntry& target = entry(id);
  target.set_checkpoint_step(step);
  save(target);
}

void JobStore::add_note(const std::string& id, const std::string& note) {
  const Change locked(*this);
  JobEntry& target = entry(id);
  target.hold_back();
  if (target.job.notes_size() < kMostNotes) target.job.add_notes(note);
  v1::JobEvent event;
  event.set_note(note);
  add_event(target, std::move(event), save(target));
}

bool JobStore::cancel_requested(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return entry(id).job.state() == v1::JOB_STATE_CANCELLING;
}

std::int64_t JobStore::epoch() const { return ledger_.newest_epoch(); }

}  // namespace meshloom::control
