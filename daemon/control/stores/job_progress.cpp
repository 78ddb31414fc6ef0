// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_progress.h"

#include <algorithm>

#include "daemon/base/states.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"

namespace meshloom::control {

namespace {

/// A cancellation or a pause that was asked for meanwhile stays.
void keep_request(v1::JobState before, v1::Job* job) {
  const bool cancelling = before == v1::JOB_STATE_CANCELLING;
  if (!cancelling && before != v1::JOB_STATE_PAUSING) return;
  const v1::JobState state = job->state();
  if (state == v1::JOB_STATE_RUNNING) job->set_state(before);
  if (state == v1::JOB_STATE_RECOVERING || (cancelling && state == v1::JOB_STATE_PAUSED))
    job->set_state(cancelling ? v1::JOB_STATE_CANCELLED : v1::JOB_STATE_PAUSED);
}

bool same_samples(const v1::Job& a, const v1::Job& b) {
  return std::equal(a.samples().begin(), a.samples().end(), b.samples().begin(), b.samples().end(),
                    [](const v1::DrawnSample& one, const v1::DrawnSample& other) {
                      return one.SerializeAsString() == other.SerializeAsString();
                    });
}

/// What the journal promises as the furthest step while an attempt does this one: the more steps
/// there are the rarer a promise is written, 64 times until their number has doubled.
std::int64_t promised_steps(std::int64_t step) { return step + step / 64; }

/// Makes the resolved settings that the job carries those of its entry.
void take_resolved(JobEntry& entry) {
  auto config = std::make_shared<JobConfig>(*entry.config);
  config->resolved.Swap(entry.job.mutable_resolved());
  entry.job.clear_resolved();
  // They were resolved from what there was before an edit that was decided meanwhile.
  if (!config->edits.empty()) apply_settings(config->edits.rbegin()->after(), &config->resolved);
  entry.config = std::move(config);
}

}  // namespace

std::optional<std::string> JobProgress::wait_for_job() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (const JobEntry* next = jobs_.first_waiting()) return next->id();
    changed_.wait(lock);
  }
  return std::nullopt;
}

std::optional<std::string> JobProgress::next_job() const {
  const std::lock_guard lock(mutex_);
  const JobEntry* next = closed_ ? nullptr : jobs_.first_waiting();
  return next ? std::optional(next->id()) : std::nullopt;
}

std::vector<std::string> JobProgress::waiting() const {
  const std::lock_guard lock(mutex_);
  std::vector<JobEntry*> items = jobs_.queue();
  std::erase_if(items,
                [](const JobEntry* item) { return item->job.state() == v1::JOB_STATE_HELD; });
  std::sort(items.begin(), items.end(),
            [](const JobEntry* a, const JobEntry* b) { return take_order(*a) < take_order(*b); });
  std::vector<std::string> ids;
  for (const JobEntry* item : items) ids.push_back(item->id());
  return ids;
}

bool JobProgress::comes_first(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const JobEntry* found = jobs_.find(id);
  return found && found->resumed;
}

v1::Job JobProgress::begin_attempt(const std::string& id) {
  Ledger::Ticket ticket = 0;
  v1::Job begun;
  {
    Change locked(*this);
    changed_.wait(locked.lock(), [&] { return closed_ || ledger().can_give_epoch(); });
    if (!ledger().can_give_epoch())
      throw Unavailable("the daemon is stopping and the journal cannot be written", "STOPPING");
    JobEntry& target = jobs_.at(id);
    if (!base::can_move(target.job.state(), v1::JOB_STATE_PREPARING))
      throw FailedPrecondition(
          fmt::format("job \"{}\" does not wait for the ranks any more: it is {}", id,
                      base::table_of<v1::JobState>().name(target.job.state())),
          "JOB_NOT_QUEUED", {{"job", id}});
    jobs_.forget_ended_events();
    target.active = true;
    target.resumed = false;
    target.begun = target.job.checkpoint_step();
    target.taken = std::chrono::steady_clock::now();
    ticket = alter(target, [&] {
      base::move_to(target.job, v1::JOB_STATE_PREPARING);
      target.job.set_epoch(ledger().give_epoch());
      target.job.set_attempt(target.job.attempt() + 1);
      target.job.set_stalled_attempts(target.job.stalled_attempts() + 1);
    });
    begun = target.job;
    put_config(target.config, &begun);
  }
  ledger().wait_kept(ticket);
  return begun;
}

void JobProgress::hold(const std::string& id, v1::HoldCode code, const std::string& reason) {
  Ledger::Ticket ticket = 0;
  {
    const Change locked(*this);
    JobEntry& target = jobs_.at(id);
    if (!base::can_move(target.job.state(), v1::JOB_STATE_HELD)) return;
    ticket = alter(target, [&] { target.hold(code, reason); });
  }
  ledger().wait_kept(ticket);
}

void JobProgress::update(const std::string& id, const std::function<void(v1::Job*)>& change) {
  Ledger::Ticket ticket = 0;
  {
    Change locked(*this);
    // A whole job in the journal replaces what an edit that is being written says.
    changed_.wait(locked.lock(), [&] { return !jobs_.at(id).editing; });
    JobEntry& target = jobs_.at(id);
    const v1::JobState before = target.job.state();
    v1::Job job = target.job;
    change(&job);
    const bool other_samples = !same_samples(job, target.job);
    keep_request(before, &job);
    if (job.state() != before)
      base::check_move(base::table_of<v1::JobState>(), id, before, job.state());
    target.hold_back();
    target.job = std::move(job);
    const bool paused = target.job.state() == v1::JOB_STATE_PAUSED;
    // What asked for the pause has ended meanwhile.
    if (paused && target.job.pause_code() == v1::PAUSE_CODE_UNSPECIFIED) jobs_.queue_first(target);
    if (paused && target.job.pause_code() == v1::PAUSE_CODE_TURN) jobs_.queue_last(target);
    const bool other_config = target.job.has_resolved();
    if (other_config) take_resolved(target);
    if (base::is_final(target.job.state()) && !base::is_final(before)) jobs_.end(target);
    if (base::is_final(target.job.state()) || target.job.state() == v1::JOB_STATE_RECOVERING ||
        paused)
      target.active = false;
    if (other_samples) keep(samples_record(target));
    v1::JournalRecord record = state_record(target);
    if (other_config) {
      record.mutable_job()->Swap(record.mutable_state());
      record.clear_state();
      put_config(target.config, &record);
    }
    ticket = keep(std::move(record));
    add_job_event(target, ticket);
  }
  ledger().wait_kept(ticket);
}

void JobProgress::publish_step(const std::string& id, const v1::StepMetrics& step) {
  const Change locked(*this);
  JobEntry& target = jobs_.at(id);
  // A step that was done before, and lost again, does not show that this attempt gets any further.
  const bool is_new = step.step() > target.furthest_step;
  const bool first = is_new && target.job.stalled_attempts() > 0;
  const bool save_it = first || target.job.revision() >= target.reserved_revision;
  if (save_it) target.hold_back();
  target.job.set_step(step.step());
  *target.job.mutable_last_step() = step;
  if (is_new) {
    target.job.set_stalled_attempts(0);
    target.furthest_step = promised_steps(step.step());
    // Nothing that is told waits for it, so no revision is promised by it.
    if (!save_it) keep(promised_record(target));
  }
  v1::JobEvent event;
  *event.mutable_step() = step;
  add_event(target, std::move(event), save_it ? save(target) : 0);
}

void JobProgress::publish_tokenizing(const std::string& id, const v1::TokenizeProgress& progress) {
  const Change locked(*this);
  JobEntry& target = jobs_.at(id);
  const bool save_it = target.job.revision() >= target.reserved_revision;
  if (save_it) target.hold_back();
  *target.job.mutable_tokenizing() = progress;
  v1::JobEvent event;
  *event.mutable_tokenizing() = progress;
  add_event(target, std::move(event), save_it ? save(target) : 0);
}

void JobProgress::publish_validation(const std::string& id,
                                     const v1::ValidationMetrics& validation) {
  const Change locked(*this);
  JobEntry& target = jobs_.at(id);
  if (!target.job.has_first_validation()) *target.job.mutable_first_validation() = validation;
  *target.job.mutable_last_validation() = validation;
  v1::JobEvent event;
  *event.mutable_validation() = validation;
  add_event(target, std::move(event), 0);
}

void JobProgress::publish_samples(const std::string& id,
                                  const std::vector<v1::DrawnSample>& samples) {
  const Change locked(*this);
  JobEntry& target = jobs_.at(id);
  target.hold_back();
  target.job.mutable_samples()->Assign(samples.begin(), samples.end());
  const Ledger::Ticket ticket = save_part(target, samples_record(target));
  for (const v1::DrawnSample& sample : samples) {
    v1::JobEvent event;
    *event.mutable_sample() = sample;
    add_event(target, std::move(event), ticket);
  }
}

void JobProgress::checkpoint_saved(const std::string& id, std::int64_t step, double ran_seconds,
                                   const v1::Goodput& goodput) {
  const std::lock_guard lock(mutex_);
  JobEntry& target = jobs_.at(id);
  target.job.set_ran_seconds(ran_seconds);
  if (goodput.until() > 0) *target.job.mutable_goodput() = goodput;
  if (step > target.job.checkpoint_step()) target.job.set_stalled_attempts(0);
  target.set_checkpoint_step(step);
  save(target);
}

void JobProgress::set_goodput(const std::string& id, const v1::Goodput& goodput) {
  const std::lock_guard lock(mutex_);
  *jobs_.at(id).job.mutable_goodput() = goodput;
}

void JobProgress::add_note(const std::string& id, const std::string& note) {
  v1::JobEvent event;
  event.set_note(note);
  add_note_event(id, std::move(event));
}

void JobProgress::publish_watch(const std::string& id, const v1::WatchNotice& notice,
                                const std::string& note) {
  v1::JobEvent event;
  event.set_note(note);
  *event.mutable_watch() = notice;
  add_note_event(id, std::move(event));
}

void JobProgress::add_note_event(const std::string& id, v1::JobEvent event) {
  const Change locked(*this);
  // Nothing may be appended behind the record that deletes the job.
  const std::string name = job_resource(id);
  if (std::any_of(undecided().begin(), undecided().end(), [&](const Undecided& item) {
        return item.record.deleted_job() == id || item.record.job().name() == name;
      }))
    return;
  JobEntry& target = jobs_.at(id);
  target.hold_back();
  auto record = keep_note(target, event.note());
  add_event(target, std::move(event),
            record ? save_part(target, *std::move(record)) : save(target));
}

bool JobProgress::cancel_requested(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return jobs_.at(id).job.state() == v1::JOB_STATE_CANCELLING;
}

bool JobProgress::pause_requested(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return jobs_.at(id).job.state() == v1::JOB_STATE_PAUSING;
}

void JobProgress::pause_failed(const std::string& id, const std::string& why) {
  Ledger::Ticket ticket = 0;
  {
    const Change locked(*this);
    JobEntry& target = jobs_.at(id);
    if (target.job.state() != v1::JOB_STATE_PAUSING) return;  // cancelled meanwhile
    ticket = alter(target, [&] {
      base::move_to(target.job, v1::JOB_STATE_RUNNING);
      target.job.clear_pause_code();
    });
  }
  ledger().wait_kept(ticket);
  add_note(id, why);
}

JobProgress::StepOrder JobProgress::begin_step(const std::string& id, std::int64_t step) {
  std::unique_lock lock(mutex_);
  JobEntry& target = jobs_.at(id);
  changed_.wait(lock, [&] { return !target.editing; });
  target.begun = step;
  return {target.config, target.config->step_limit, target.config->time_limit_seconds};
}

}  // namespace meshloom::control
