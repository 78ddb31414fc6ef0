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
#include "daemon/control/stores/state_contents.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostQueued = 1000;
constexpr std::int64_t kRevisionBlock = 10'000;
constexpr int kMostCalls = 8;

v1::Job queued_job(const v1::JobSpec& spec, const v1::RunConfig& resolved) {
  v1::Job job;
  *job.mutable_spec() = spec;
  *job.mutable_resolved() = resolved;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_steps(end_step(settings_of(resolved), spec.step_limit()));
  job.set_create_time(base::now_rfc3339());
  job.set_revision(1);
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
    : options_(options),
      calls_(options.follow_timeout, kMostCalls),
      ledger_(options.journal, [this](const v1::JournalRecord& record) {
        apply(record);
        for (JournaledStore* other : options_.others) other->replay(record);
      }) {
  const std::filesystem::path state_dir = options_.journal.parent_path();
  match_contents(state_dir, ledger_.journal_id(), ledger_.is_new());
  settle_after_restart(options.hold_unfinished);
  for (JournaledStore* other : options_.others) other->join(ledger_);
  ledger_.start({[this](const Ledger::Visit& append) {
                   snapshot(append);
                   for (JournaledStore* other : options_.others) other->snapshot(append);
                 },
                 [this](Ledger::Ticket upto) {
                   on_durable(upto);
                   for (JournaledStore* other : options_.others) other->on_durable(upto);
                 },
                 [this](Ledger::Ticket ticket) {
                   on_refused(ticket);
                   for (JournaledStore* other : options_.others) other->on_refused(ticket);
                 }});
  sign_contents(state_dir, ledger_.journal_id());
}

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

std::string JobStore::make_up_id() {
  std::string id;
  do {
    id = fmt::format("job-{}", next_job_++);
  } while (by_id_.count(id) > 0 || removed_.count(id) > 0 || undecided(id, {}) ||
           std::filesystem::exists(options_.jobs_dir / id));
  return id;
}

void JobStore::check_name_is_free(const std::string& id) const {
  if (by_id_.count(id) > 0 || removed_.count(id) > 0 ||
      std::filesystem::exists(options_.jobs_dir / id))
    throw AlreadyExists(fmt::format("a job named \"{}\" exists already; choose another name", id),
                        "JOB_EXISTS", {{"job", id}, {"field", "name"}});
}

void JobStore::check_room() const {
  if (closed_) throw Unavailable("the daemon is stopping", "STOPPING");
  const std::size_t waiting = unfinished_.size() + undecided_.size();
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

Ledger::Ticket JobStore::save(JobEntry& entry, const std::optional<v1::RequestRecord>& request) {
  v1::JournalRecord record = state_record(entry);
  if (request) *record.mutable_request() = *request;
  return ledger_.append(std::move(record));
}

Ledger::Ticket JobStore::save_part(JobEntry& entry, v1::JournalRecord record) {
  constexpr std::int64_t kFewEvents = 100;
  const Ledger::Ticket ticket = ledger_.append(std::move(record));
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
  changed_.wait(lock, [&] { return !undecided("", key); });
  if (const auto first = ledger_.find_request(key)) return repeat(*first);
  return std::nullopt;
}

bool JobStore::undecided(const std::string& id, const RequestKey& key) const {
  return std::any_of(undecided_.begin(), undecided_.end(), [&](const Undecided& item) {
    return (!id.empty() && item.id == id) || (!key.id.empty() && item.request_id == key.id);
  });
}

v1::Job JobStore::submit(const v1::JobSpec& spec, const v1::RunConfig& resolved,
                         const RequestKey& key) {
  // What is large is copied before others have to wait.
  v1::JournalRecord record;
  *record.mutable_job() = queued_job(spec, resolved);
  auto fresh = std::make_unique<JobEntry>(record.job(), 0);
  v1::Job answer = record.job();
  const std::string wanted = spec.name().empty() ? "" : parse_job_name(spec.name());
  Ledger::Ticket ticket = 0;
  {
    std::unique_lock lock(mutex_);
    // How another one with this name or request id ends decides about this one.
    changed_.wait(lock, [&] { return !undecided(wanted, key); });
    if (const auto first = ledger_.find_request(key)) return repeat(*first);
    check_room();
    const std::string id = wanted.empty() ? make_up_id() : wanted;
    check_name_is_free(id);
    for (v1::Job* job : {&fresh->job, record.mutable_job(), &answer}) {
      job->set_name(job_resource(id));
      job->mutable_spec()->set_name(id);
    }
    for (v1::Job* job : {&fresh->job, &answer}) set_folders(job, options_.jobs_dir / id);
    for (v1::Job* job : {&fresh->job, record.mutable_job(), &answer})
      job->set_queue_place(last_place() + kQueueGap);
    fresh->reserved_revision = answer.revision() + kRevisionBlock;
    record.mutable_job()->set_revision(fresh->reserved_revision);
    record.set_next_job(next_job_);
    const auto request = RequestLog::record_of(key, answer.name());
    if (request) *record.mutable_request() = *request;
    ticket = ledger_.append(std::move(record), Ledger::Need::kRefusable);
    undecided_.push_back({ticket, id, std::move(fresh), key.id});
  }
  ledger_.wait(ticket);
  return answer;
}

void JobStore::check_submission(const v1::JobSpec& spec) const {
  const std::string wanted = spec.name().empty() ? "" : parse_job_name(spec.name());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !undecided(wanted, {}); });
  check_room();
  if (!wanted.empty()) check_name_is_free(wanted);
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
  Ledger::Ticket ticket = 0;
  {
    const Change locked(*this);
    if (const auto first = ledger_.find_request(key)) return repeat(*first);
    JobEntry& target = entry(id);
    const v1::JobState state = target.job.state();
    if (state == v1::JOB_STATE_CANCELLED || state == v1::JOB_STATE_CANCELLING) {
      ticket = target.newest_ticket();
    } else if (base::is_final(state)) {
      throw FailedPrecondition(
          fmt::format("job \"{}\" has ended already ({}) and cannot be cancelled", id,
                      past_of(state)),
          "JOB_FINISHED", {{"job", id}});
    } else {
      target.hold_back();
      base::move_to(target.job, target.active ? v1::JOB_STATE_CANCELLING : v1::JOB_STATE_CANCELLED);
      target.job.clear_hold_reason();
      target.job.clear_hold_code();
      target.job.clear_pause_code();
      if (!target.active) ended(target);
      ticket = save(target, RequestLog::record_of(key, target.job.name()));
      add_job_event(target, ticket);
    }
  }
  ledger_.wait(ticket);
  return get(id);
}

v1::Job JobStore::release(const std::string& id, const RequestKey& key) {
  Ledger::Ticket ticket = 0;
  {
    const Change locked(*this);
    if (const auto first = ledger_.find_request(key)) return repeat(*first);
    JobEntry& target = entry(id);
    if (target.job.state() != v1::JOB_STATE_HELD) {
      const std::string state = base::table_of<v1::JobState>().name(target.job.state());
      throw FailedPrecondition(fmt::format("job \"{}\" is not held: it is {}", id, state),
                               "JOB_NOT_HELD", {{"job", id}, {"state", state}});
    }
    target.hold_back();
    target.job.set_stalled_attempts(0);
    base::move_to(target.job,
                  target.job.attempt() == 0 ? v1::JOB_STATE_QUEUED : v1::JOB_STATE_RECOVERING);
    target.job.clear_hold_reason();
    target.job.clear_hold_code();
    ticket = save(target, RequestLog::record_of(key, target.job.name()));
    add_job_event(target, ticket);
  }
  ledger_.wait(ticket);
  return get(id);
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
