// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_store.h"

#include <algorithm>

#include "daemon/base/nearest_name.h"
#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/stores/labels.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/page_room.h"
#include "daemon/control/stores/request_log.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostQueued = 1000;
constexpr std::int64_t kFirstRevision = 1;
constexpr std::int64_t kRevisionBlock = 10'000;
constexpr int kMostCalls = 8;

v1::Job queued_job(const v1::JobSpec& spec, const v1::RunConfig& resolved) {
  v1::Job job;
  *job.mutable_spec() = spec;
  *job.mutable_resolved() = resolved;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_steps(end_step(settings_of(resolved), spec.step_limit()));
  job.set_create_time(base::now_rfc3339());
  job.set_revision(kFirstRevision);
  return job;
}

const char* past_of(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED: return "succeeded";
    case v1::JOB_STATE_CANCELLED: return "cancelled";
    default: return "failed";
  }
}

}  // namespace

JobStore::JobStore(const Options& options)
    : options_(options), calls_(options.follow_timeout, kMostCalls) {}

std::string JobStore::hint_of(const std::string& id) const {
  constexpr std::size_t kMostNames = 1000;
  std::vector<std::string> names;
  for (auto known = by_id_.begin(); known != by_id_.end() && names.size() < kMostNames; ++known)
    names.push_back(known->first);
  return base::nearest_hint(id, names);
}

JobEntry& JobStore::entry(const std::string& id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end())
    throw NotFound(fmt::format("job \"{}\" does not exist{}", id, hint_of(id)), "JOB_NOT_FOUND",
                   {{"job", id}});
  return *found->second;
}

bool JobStore::is_free(const std::string& id) const {
  return by_id_.count(id) == 0 && removed_.count(id) == 0 && !is_undecided(id, {});
}

bool JobStore::has_folder(const std::string& id) const {
  return std::filesystem::exists(options_.jobs_dir / id);
}

void JobStore::check_name_is_free(const std::string& id, bool has_folder) const {
  if (by_id_.count(id) > 0 || removed_.count(id) > 0 || has_folder)
    throw AlreadyExists(fmt::format("a job named \"{}\" exists already; choose another name", id),
                        "JOB_EXISTS", {{"job", id}, {"field", "name"}});
}

void JobStore::check_room() const {
  if (closed_) throw Unavailable("the daemon is stopping", "STOPPING");
  const std::size_t waiting = unfinished_.size() + undecided().size();
  if (waiting >= kMostQueued)
    throw ResourceExhausted(fmt::format("{} jobs are queued, no more are taken", waiting),
                            "QUEUE_FULL");
}

void JobStore::add_event(JobEntry& entry, v1::JobEvent event, Ledger::Ticket ticket) {
  entry.add_event(std::move(event), ticket);
  if (entry.behind()) {
    behind_.insert(&entry);
    return;
  }
  changed_.notify_all();
  subscribers_.mark(entry.id());
}

void JobStore::add_job_event(JobEntry& entry, Ledger::Ticket ticket) {
  v1::JobEvent event;
  *event.mutable_job() = entry.job;
  add_event(entry, std::move(event), ticket);
  changed_.notify_all();
}

v1::JournalRecord JobStore::promised_record(const JobEntry& entry) {
  v1::JournalRecord record;
  *record.mutable_state() = without_parts(entry.job);
  record.set_without_parts(true);
  record.set_job_resumed(entry.resumed);
  record.set_job_furthest_step(entry.furthest_step);
  record.mutable_state()->set_revision(entry.reserved_revision);
  return record;
}

v1::JournalRecord JobStore::state_record(JobEntry& entry) {
  entry.reserved_revision = entry.job.revision() + kRevisionBlock;
  return promised_record(entry);
}

Ledger::Ticket JobStore::save(JobEntry& entry, const Request& request) {
  v1::JournalRecord record = state_record(entry);
  if (request) *record.mutable_request() = *request;
  return keep(std::move(record));
}

Ledger::Ticket JobStore::alter(JobEntry& target, const std::function<void()>& apply,
                               const Request& request) {
  target.hold_back();
  apply();
  const Ledger::Ticket ticket = save(target, request);
  add_job_event(target, ticket);
  return ticket;
}

v1::Job JobStore::change(const std::string& id, const RequestKey& key, const Make& make) {
  Ledger::Ticket ticket = 0;
  {
    Change locked(*this);
    // Behind the record that deletes the job, one of its state would be of a job that the journal
    // does not know.
    changed_.wait(locked.lock(), [&] { return !is_undecided(id, key); });
    if (const auto first = ledger().find_request(key)) return repeat(*first);
    JobEntry& target = entry(id);
    ticket = make(target, RequestLog::record_of(key, target.job.name()));
  }
  ledger().wait(ticket);
  return get(id);
}

Ledger::Ticket JobStore::save_part(JobEntry& entry, v1::JournalRecord record) {
  constexpr std::int64_t kFewEvents = 100;
  const Ledger::Ticket ticket = keep(std::move(record));
  return entry.job.revision() + kFewEvents < entry.reserved_revision ? ticket : save(entry);
}

std::optional<v1::JournalRecord> JobStore::keep_note(JobEntry& entry, const std::string& note) {
  v1::JournalRecord record;
  v1::StoredJobNote& kept = *record.mutable_job_note();
  kept.set_job(entry.job.name());
  kept.set_number(entry.job.notes_size());
  if (!keep_first_note(note, entry.job.mutable_notes())) return std::nullopt;
  kept.set_note(*entry.job.notes().rbegin());
  return record;
}

v1::JournalRecord JobStore::samples_record(const JobEntry& entry) {
  v1::JournalRecord record;
  record.mutable_job_samples()->set_job(entry.job.name());
  *record.mutable_job_samples()->mutable_samples() = entry.job.samples();
  return record;
}

v1::Job JobStore::repeat(const v1::RequestRecord& record) const {
  const std::string id = parse_job_name(record.resource());
  if (record.gone())
    throw NotFound(fmt::format("job \"{}\" of this request was deleted", id), "JOB_DELETED",
                   {{"job", id}});
  const JobEntry& found = entry(id);
  v1::Job job = found.view();
  put_config(found.config, &job);
  return job;
}

std::optional<v1::Job> JobStore::find_request(const RequestKey& key) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_undecided("", key); });
  if (const auto first = ledger().find_request(key)) return repeat(*first);
  return std::nullopt;
}

bool JobStore::is_undecided(const std::string& id, const RequestKey& key) const {
  const std::string name = job_resource(id);
  return std::any_of(undecided().begin(), undecided().end(), [&](const Undecided& item) {
    const v1::JournalRecord& record = item.record;
    const bool of_job = record.deleted_job() == id || record.job().name() == name ||
                        record.job_edit().job() == name;
    return (!id.empty() && of_job) || (!key.id.empty() && record.request().request_id() == key.id);
  });
}

v1::Job JobStore::submit(const v1::JobSpec& spec, const v1::RunConfig& resolved,
                         const RequestKey& key) {
  // What is large is copied before others have to wait.
  v1::JournalRecord record, effect;
  *record.mutable_job() = queued_job(spec, resolved);
  effect = record;
  v1::Job answer = record.job();
  const std::string wanted = spec.name().empty() ? "" : parse_job_name(spec.name());
  // Folders of which the store may not know: what there is was looked at without the mutex.
  std::string id = wanted;
  std::set<std::string> looked_at, folders;
  Ledger::Ticket ticket = 0;
  while (ticket == 0) {
    if (!id.empty() && looked_at.insert(id).second && has_folder(id)) folders.insert(id);
    std::unique_lock lock(mutex_);
    // How another one with this name or request id ends decides about this one.
    changed_.wait(lock, [&] { return !is_undecided(wanted, key); });
    if (const auto first = ledger().find_request(key)) return repeat(*first);
    check_room();
    if (wanted.empty() && (id.empty() || folders.contains(id) || !is_free(id))) {
      do {
        id = fmt::format("job-{}", next_job_++);
      } while (!is_free(id));
      continue;
    }
    check_name_is_free(id, folders.contains(id));
    for (v1::Job* job : {record.mutable_job(), effect.mutable_job(), &answer}) {
      job->set_name(job_resource(id));
      job->mutable_spec()->set_name(id);
      job->set_queue_place(last_place() + kQueueGap);
    }
    set_folders(&answer, options_.jobs_dir / id);
    for (v1::JournalRecord* one : {&record, &effect}) {
      one->mutable_job()->set_revision(answer.revision() + kRevisionBlock);
      one->set_next_job(next_job_);
      if (const auto request = RequestLog::record_of(key, answer.name()))
        *one->mutable_request() = *request;
    }
    ticket = propose(std::move(record), std::move(effect), Ledger::Need::kRefusable);
  }
  ledger().wait(ticket);
  return answer;
}

void JobStore::take_submitted(v1::JournalRecord record) {
  const std::int64_t reserved = record.job().revision();
  record.mutable_job()->set_revision(kFirstRevision);
  JobEntry& added = add_entry(std::make_unique<JobEntry>(std::move(*record.mutable_job()), 0));
  set_folders(&added.job, options_.jobs_dir / added.id());
  added.reserved_revision = reserved;
  unfinished_.emplace(added.number, &added);
}

void JobStore::check_submission(const v1::JobSpec& spec) const {
  const std::string wanted = spec.name().empty() ? "" : parse_job_name(spec.name());
  const bool there = !wanted.empty() && has_folder(wanted);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_undecided(wanted, {}); });
  check_room();
  if (!wanted.empty()) check_name_is_free(wanted, there);
}

std::optional<v1::Job> JobStore::active_job() const {
  v1::Job job;
  SharedJobConfig config;
  {
    const std::lock_guard lock(mutex_);
    const auto active = std::find_if(entries_.begin(), entries_.end(),
                                     [](const auto& item) { return item.second->active; });
    if (active == entries_.end()) return std::nullopt;
    job = active->second->view();
    config = active->second->config;
  }
  put_config(config, &job);
  return job;
}

v1::Job JobStore::get(const std::string& id) const {
  v1::Job job;
  SharedJobConfig config;
  {
    const std::lock_guard lock(mutex_);
    const JobEntry& found = entry(id);
    job = found.view();
    config = found.config;
  }
  put_config(config, &job);
  return job;
}

v1::JobState JobStore::state(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return entry(id).told().state();
}

std::pair<std::vector<v1::Job>, std::int64_t> JobStore::list(std::int64_t position, int size,
                                                             const Labels& labels) const {
  const std::lock_guard lock(mutex_);
  return page_of(entries_, position, size, [&](const auto& item) {
    return has_labels(item->told().spec().labels(), labels) ? std::optional(item->summary())
                                                            : std::nullopt;
  });
}

v1::Job JobStore::cancel(const std::string& id, const RequestKey& key) {
  return change(id, key, [&](JobEntry& target, const Request& request) {
    const v1::JobState state = target.job.state();
    if (state == v1::JOB_STATE_CANCELLED || state == v1::JOB_STATE_CANCELLING)
      return target.newest_ticket();
    if (base::is_final(state))
      throw FailedPrecondition(
          fmt::format("job \"{}\" has ended already ({}) and cannot be cancelled", id,
                      past_of(state)),
          "JOB_FINISHED", {{"job", id}});
    const auto apply = [&] {
      base::move_to(target.job, target.active ? v1::JOB_STATE_CANCELLING : v1::JOB_STATE_CANCELLED);
      target.job.clear_hold_reason();
      target.job.clear_hold_code();
      target.job.clear_pause_code();
      if (!target.active) ended(target);
    };
    return alter(target, apply, request);
  });
}

v1::Job JobStore::release(const std::string& id, const RequestKey& key) {
  return change(id, key, [&](JobEntry& target, const Request& request) {
    if (target.job.state() != v1::JOB_STATE_HELD) {
      const std::string state = base::table_of<v1::JobState>().name(target.job.state());
      throw FailedPrecondition(fmt::format("job \"{}\" is not held: it is {}", id, state),
                               "JOB_NOT_HELD", {{"job", id}, {"state", state}});
    }
    const auto apply = [&] {
      target.job.set_stalled_attempts(0);
      base::move_to(target.job,
                    target.job.attempt() == 0 ? v1::JOB_STATE_QUEUED : v1::JOB_STATE_RECOVERING);
      target.job.clear_hold_reason();
      target.job.clear_hold_code();
    };
    return alter(target, apply, request);
  });
}

std::vector<v1::JobEvent> JobStore::events_after(const std::string& id,
                                                 std::int64_t revision) const {
  std::vector<v1::JobEvent> events;
  SharedJobConfig config;
  {
    const std::lock_guard lock(mutex_);
    const JobEntry& watched = entry(id);
    events = watched.events_after(revision);
    if (events.empty() && closed_) throw Unavailable("the daemon is stopping", "STOPPING");
    config = watched.config;
  }
  for (v1::JobEvent& event : events)
    if (event.has_job()) put_config(config, event.mutable_job());
  return events;
}

Subscription JobStore::subscribe(const std::string& id, std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  entry(id);
  return subscribers_.add(id, std::move(notify));
}

void JobStore::close() {
  calls_.stop();
  const Change locked(*this);
  closed_ = true;
  changed_.notify_all();
  subscribers_.mark_all();
}

}  // namespace meshloom::control
