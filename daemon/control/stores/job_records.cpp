// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_records.h"

#include <algorithm>

#include "daemon/base/goodput.h"
#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/stores/goodput_clock.h"
#include "daemon/control/stores/job_log.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

void show_limits(JobEntry& target) {
  const JobConfig& config = *target.config;
  target.job.mutable_spec()->set_step_limit(config.step_limit);
  target.job.mutable_spec()->set_time_limit_seconds(config.time_limit_seconds);
  target.job.set_steps(end_step(settings_of(config.resolved), config.step_limit));
}

/// An attempt counts the time itself.
bool is_of_attempt(v1::JobState state) {
  return state == v1::JOB_STATE_PREPARING || state == v1::JOB_STATE_RUNNING ||
         state == v1::JOB_STATE_PAUSING || state == v1::JOB_STATE_CANCELLING;
}

/// Up to now, in which there was no daemon either.
void count_before_restart(v1::JobState state, v1::PauseCode pause, v1::Job* job) {
  const double now = base::now_seconds();
  v1::Goodput& goodput = *job->mutable_goodput();
  if (goodput.until() == 0) {  // of a version that did not count
    const double begin = base::seconds_of_rfc3339(job->create_time()).value_or(now);
    base::add_lost("unknown", std::max(now - begin, 0.0), &goodput);
  }
  count_state(state, pause, now, &goodput);
}

}  // namespace

void JobRecords::erase(const std::string& id) {
  JobEntry* target = jobs_.find(id);
  if (target == nullptr) return;
  std::erase_if(gone_checkpoints_, [prefix = checkpoint_resource(id, "")](const auto& item) {
    return item.first.starts_with(prefix);
  });
  behind_.erase(target);
  jobs_.erase(id);
}

void JobRecords::apply(const v1::JournalRecord& record) {
  next_job_ = std::max(next_job_, record.next_job());
  if (const std::string& id = record.deleted_job(); !id.empty()) {
    erase(id);
    removed_.insert(id);
  }
  if (record.has_deleted_checkpoint())
    gone_checkpoints_[record.deleted_checkpoint().name()] = record.deleted_checkpoint().stamp();
  // A part says nothing of a job that was removed since then.
  if (record.has_job_edit()) return apply_edit(record.job_edit());
  if (record.has_job_note()) {
    JobEntry* target = jobs_.find(parse_job_name(record.job_note().job()));
    if (target && target->job.notes_size() == record.job_note().number())
      *target->job.mutable_notes()->Add() = record.job_note().note();
  } else if (record.has_job_samples()) {
    if (JobEntry* target = jobs_.find(parse_job_name(record.job_samples().job())))
      *target->job.mutable_samples() = record.job_samples().samples();
  } else if (record.has_job() || record.has_state()) {
    apply_job(record);
  }
}

void JobRecords::apply_job(const v1::JournalRecord& record) {
  v1::Job job = record.has_job() ? record.job() : record.state();
  const std::string id = parse_job_name(job.name());
  JobEntry* found = jobs_.find(id);
  if (record.has_state() && !found)
    throw DataLoss(fmt::format("journal: it changes job \"{}\", of which it does not know", id),
                   "JOURNAL_CORRUPT", {{"job", id}});
  removed_.erase(id);
  JobEntry& target = found ? *found : jobs_.add(std::make_unique<JobEntry>(job, 0));
  if (record.without_parts()) {
    *job.mutable_notes() = target.job.notes();
    *job.mutable_samples() = target.job.samples();
  }
  const auto& numbers = record.job_edit_numbers();
  if (record.has_job()) target.config = take_config(&job, {numbers.begin(), numbers.end()});
  target.reserved_revision = job.revision();
  // Journals of versions without it: one that has had the ranks is queued only as resumed.
  target.resumed = record.has_job_resumed()
                       ? record.job_resumed()
                       : job.state() == v1::JOB_STATE_QUEUED && job.attempt() > 0;
  target.furthest_step = record.has_job_furthest_step() ? record.job_furthest_step() : job.step();
  target.job = std::move(job);
  set_folders(&target.job, options_.jobs_dir / id);
  // A state that was appended while an edit was being written does not have it.
  if (target.config && !target.config->edits.empty()) show_limits(target);
}

void JobRecords::apply_edit(const v1::StoredJobEdit& record) {
  JobEntry* found = jobs_.find(parse_job_name(record.job()));
  if (!found || !found->config) return;  // removed, or a summary, since then
  JobEntry& target = *found;
  auto config = std::make_shared<JobConfig>(*target.config);
  add_edit(config->resolved, record.edit(), &config->edits);
  std::vector<std::int64_t>& numbers = config->edit_numbers;
  const std::int64_t number = numbers.empty() ? 1 : numbers.back() + 1;
  numbers.resize(static_cast<std::size_t>(config->edits.size()) - 1);
  numbers.push_back(number);
  apply_settings(record.edit().after(), &config->run);
  apply_settings(record.edit().after(), &config->resolved);
  config->step_limit = record.step_limit();
  config->time_limit_seconds = record.time_limit_seconds();
  target.config = std::move(config);
  show_limits(target);
}

void JobRecords::settle_after_restart() {
  jobs_.settle();
  std::string events;
  for (const auto& [number, item] : std::map(jobs_.unfinished())) {
    const v1::JobState before = item->job.state();
    count_before_restart(before, item->job.pause_code(), &item->job);
    settle_entry(*item);
    if (item->job.state() != before) events += state_line(item->job, before);
  }
  if (options_.events) options_.events->append(events);
  jobs_.drop_details(options_.most_detailed);
}

void JobRecords::settle_entry(JobEntry& entry) {
  v1::Job& job = entry.job;
  job.set_step(job.checkpoint_step());
  if (job.last_step().step() > job.step()) job.clear_last_step();
  job.clear_hold_reason();
  job.clear_hold_code();
  job.clear_tokenizing();
  if (job.state() == v1::JOB_STATE_CANCELLING) {
    base::move_to(job, v1::JOB_STATE_CANCELLED);
    return jobs_.end(entry);
  }
  if (job.state() == v1::JOB_STATE_PAUSING) base::move_to(job, v1::JOB_STATE_PAUSED);
  const bool gives_turn = job.pause_code() == v1::PAUSE_CODE_TURN;
  if (job.state() == v1::JOB_STATE_PAUSED && !gives_turn &&
      job.pause_code() != v1::PAUSE_CODE_UNSPECIFIED)
    return;
  if (job.state() == v1::JOB_STATE_PAUSED) {
    if (gives_turn)
      jobs_.queue_last(entry);
    else
      jobs_.queue_first(entry);
  } else if (job.state() == v1::JOB_STATE_HELD && job.attempt() == 0) {
    base::move_to(job, v1::JOB_STATE_QUEUED);
  } else if (job.state() != v1::JOB_STATE_QUEUED) {
    base::move_to(job, v1::JOB_STATE_RECOVERING);
  }
  if (job.stalled_attempts() >= options_.most_stalled_attempts)
    entry.hold(v1::HOLD_CODE_CRASH_LOOP, fmt::format("CRASH_LOOP: the daemon ended in each of its "
                                                     "last {} attempts before a step was done that "
                                                     "no attempt had done before",
                                                     job.stalled_attempts()));
  else if (options_.hold_unfinished)
    entry.hold(v1::HOLD_CODE_NO_RESUME, "NO_RESUME: the daemon was started with --no-resume");
  else
    return;
  spdlog::warn("job {} is held: {}; to let it run: meshloom job release {}", entry.id(),
               job.hold_reason(), entry.id());
}

void JobRecords::snapshot(const Ledger::Visit& append) const {
  std::vector<v1::JournalRecord> records(1);
  std::vector<std::int64_t> numbers;
  {
    const std::lock_guard lock(mutex_);
    records[0].set_next_job(next_job_);
    for (const std::string& id : removed_) records.emplace_back().set_deleted_job(id);
    for (const auto& [name, stamp] : gone_checkpoints_) {
      v1::StoredDeletedCheckpoint& gone = *records.emplace_back().mutable_deleted_checkpoint();
      gone.set_name(name);
      gone.set_stamp(stamp);
    }
    for (const auto& item : jobs_.all()) numbers.push_back(item.first);
  }
  for (const v1::JournalRecord& record : records) append(record);
  // One by one: others do not wait for all of them, and only this thread takes jobs away. What
  // changes meanwhile is appended behind.
  for (const std::int64_t number : numbers) {
    v1::JournalRecord record;
    SharedJobConfig config;
    {
      const std::lock_guard lock(mutex_);
      const JobEntry& item = *jobs_.all().at(number);
      *record.mutable_job() = without_folders(item.job);
      record.mutable_job()->set_revision(std::max(item.reserved_revision, item.job.revision()));
      record.set_job_resumed(item.resumed);
      record.set_job_furthest_step(item.furthest_step);
      config = item.config;
    }
    put_config(config, &record);
    append(record);
  }
}

std::string JobRecords::event_lines_up_to(Ledger::Ticket upto) const {
  std::multimap<Ledger::Ticket, std::string> by_ticket;
  for (const Undecided& item : undecided())
    if (item.ticket <= upto && item.record.has_job())
      by_ticket.emplace(item.ticket, state_line(item.record.job(), v1::JOB_STATE_UNSPECIFIED));
  for (const JobEntry* late : behind_)
    for (auto& [ticket, lines] : late->event_lines(upto)) by_ticket.emplace(ticket, lines);
  std::string all;
  for (const auto& [ticket, lines] : by_ticket) all += lines;
  return all;
}

void JobRecords::on_durable(Ledger::Ticket upto) {
  // Before they are told, so that who hears of a job's end finds it in the log. Without the mutex:
  // disks are slow, and only this thread tells what must be durable and takes jobs away.
  std::map<std::string, std::string> logs;
  std::string events;
  {
    const std::lock_guard lock(mutex_);
    for (const JobEntry* late : behind_) logs[late->id()] = late->log_lines(upto);
    if (options_.events) events = event_lines_up_to(upto);
  }
  if (options_.events) options_.events->append(events);
  for (const auto& [id, lines] : logs) append_job_log(options_.jobs_dir / id, lines);
  const Change locked(*this);
  take_effect_up_to(upto);
  for (auto item = behind_.begin(); item != behind_.end();) {
    JobEntry& late = **item;
    if (late.publish(upto)) {
      subscribers_.mark(late.id());
      if (!late.behind() && base::is_final(late.job.state())) ++ends_;
    }
    item = late.behind() ? std::next(item) : behind_.erase(item);
  }
  jobs_.drop_details(options_.most_detailed);
  changed_.notify_all();
}

void JobRecords::take_effect(v1::JournalRecord record) {
  if (record.has_job_edit()) {
    take_edit(record.job_edit());
  } else if (record.has_job()) {
    take_submitted(std::move(record));
  } else {
    erase(record.deleted_job());
    removed_.insert(record.deleted_job());
  }
}

void JobRecords::take_submitted(v1::JournalRecord record) {
  const std::int64_t reserved = record.job().revision();
  record.mutable_job()->set_revision(kFirstRevision);
  auto fresh = std::make_unique<JobEntry>(std::move(*record.mutable_job()), 0);
  set_folders(&fresh->job, options_.jobs_dir / fresh->id());
  fresh->reserved_revision = reserved;
  jobs_.submit(std::move(fresh));
}

void JobRecords::take_edit(const v1::StoredJobEdit& record) {
  const std::string id = parse_job_name(record.job());
  JobEntry* found = jobs_.find(id);
  if (!found) return;
  JobEntry& target = *found;
  target.editing = false;
  target.hold_back();
  apply_edit(record);
  v1::JobEvent event;
  *event.mutable_job() = target.job;
  event.set_note(fmt::format("edited: what is behind step {} goes by other settings",
                             record.edit().after_step()));
  if (auto note = keep_note(target, event.note())) keep(*std::move(note));
  add_event(target, std::move(event), save(target));
}

void JobRecords::on_refused(Ledger::Ticket ticket) {
  const Change locked(*this);
  if (const auto refused = forget(ticket); refused && refused->has_job_edit())
    if (JobEntry* edited = jobs_.find(parse_job_name(refused->job_edit().job())))
      edited->editing = false;
  changed_.notify_all();
}

void JobRecords::add_event(JobEntry& entry, v1::JobEvent event, Ledger::Ticket ticket) {
  entry.add_event(std::move(event), ticket);
  if (entry.behind()) {
    behind_.insert(&entry);
    return;
  }
  changed_.notify_all();
  subscribers_.mark(entry.id());
}

void JobRecords::add_job_event(JobEntry& entry, Ledger::Ticket ticket) {
  v1::JobEvent event;
  *event.mutable_job() = entry.job;
  add_event(entry, std::move(event), ticket);
  changed_.notify_all();
}

v1::JournalRecord JobRecords::promised_record(const JobEntry& entry) {
  v1::JournalRecord record;
  *record.mutable_state() = without_parts(entry.job);
  record.set_without_parts(true);
  record.set_job_resumed(entry.resumed);
  record.set_job_furthest_step(entry.furthest_step);
  record.mutable_state()->set_revision(entry.reserved_revision);
  return record;
}

v1::JournalRecord JobRecords::state_record(JobEntry& entry) {
  entry.reserved_revision = entry.job.revision() + kRevisionBlock;
  return promised_record(entry);
}

Ledger::Ticket JobRecords::save(JobEntry& entry, const Request& request) {
  v1::JournalRecord record = state_record(entry);
  if (request) *record.mutable_request() = *request;
  return keep(std::move(record));
}

Ledger::Ticket JobRecords::alter(JobEntry& target, const std::function<void()>& apply,
                                 const Request& request) {
  target.hold_back();
  const v1::JobState before = target.job.state();
  const v1::PauseCode pause = target.job.pause_code();
  apply();
  if (target.job.state() != before && !is_of_attempt(before))
    count_state(before, pause, base::now_seconds(), target.job.mutable_goodput());
  const Ledger::Ticket ticket = save(target, request);
  add_job_event(target, ticket);
  return ticket;
}

Ledger::Ticket JobRecords::save_part(JobEntry& entry, v1::JournalRecord record) {
  constexpr std::int64_t kFewEvents = 100;
  const Ledger::Ticket ticket = keep(std::move(record));
  return entry.job.revision() + kFewEvents < entry.reserved_revision ? ticket : save(entry);
}

std::optional<v1::JournalRecord> JobRecords::keep_note(JobEntry& entry, const std::string& note) {
  v1::JournalRecord record;
  v1::StoredJobNote& kept = *record.mutable_job_note();
  kept.set_job(entry.job.name());
  kept.set_number(entry.job.notes_size());
  if (!keep_first_note(note, entry.job.mutable_notes())) return std::nullopt;
  kept.set_note(*entry.job.notes().rbegin());
  return record;
}

v1::JournalRecord JobRecords::samples_record(const JobEntry& entry) {
  v1::JournalRecord record;
  record.mutable_job_samples()->set_job(entry.job.name());
  *record.mutable_job_samples()->mutable_samples() = entry.job.samples();
  return record;
}

v1::Job JobRecords::repeat(const v1::RequestRecord& record) const {
  const std::string id = parse_job_name(record.resource());
  if (record.gone())
    throw NotFound(fmt::format("job \"{}\" of this request was deleted", id), "JOB_DELETED",
                   {{"job", id}});
  const JobEntry& found = jobs_.at(id);
  v1::Job job = found.view();
  put_config(found.config, &job);
  return job;
}

std::optional<v1::Job> JobRecords::find_request(const RequestKey& key) const {
  std::unique_lock lock(mutex_);
  wait_until_decided(lock, "", key);
  if (const auto first = ledger().find_request(key)) return repeat(*first);
  return std::nullopt;
}

bool JobRecords::is_undecided(const std::string& id, const RequestKey& key) const {
  const std::string name = job_resource(id);
  return std::any_of(undecided().begin(), undecided().end(), [&](const Undecided& item) {
    const v1::JournalRecord& record = item.record;
    const bool of_job = record.deleted_job() == id || record.job().name() == name ||
                        record.job_edit().job() == name;
    return (!id.empty() && of_job) || (!key.id.empty() && record.request().request_id() == key.id);
  });
}

bool JobRecords::wait_until_decided(std::unique_lock<std::mutex>& lock, const std::string& id,
                                    const RequestKey& key) const {
  bool waited = false;
  for (; is_undecided(id, key); waited = true) changed_.wait(lock);
  return waited;
}

bool JobRecords::is_free(const std::string& id) const {
  return jobs_.find(id) == nullptr && removed_.count(id) == 0 && !is_undecided(id, {});
}

std::optional<std::string> JobRecords::find_user(const ConfigTest& uses) const {
  if (auto user = jobs_.find_user(uses)) return user;
  for (const Undecided& item : undecided())
    if (item.record.has_job() && uses(item.record.job().resolved()))
      return parse_job_name(item.record.job().name());
  return std::nullopt;
}

std::vector<v1::JobEvent> JobRecords::events_after(const std::string& id,
                                                   std::int64_t revision) const {
  std::vector<v1::JobEvent> events;
  SharedJobConfig config;
  {
    const std::lock_guard lock(mutex_);
    const JobEntry& watched = jobs_.at(id);
    events = watched.events_after(revision);
    if (events.empty() && closed_) throw Unavailable("the daemon is stopping", "STOPPING");
    config = watched.config;
  }
  for (v1::JobEvent& event : events)
    if (event.has_job()) put_config(config, event.mutable_job());
  return events;
}

Subscription JobRecords::subscribe(const std::string& id, std::weak_ptr<Wakeable> subscriber) {
  const std::lock_guard lock(mutex_);
  jobs_.at(id);
  return subscribers_.add(id, std::move(subscriber));
}

}  // namespace meshloom::control
