// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/job_store.h"

#include <algorithm>

#include "daemon/control/job_state.h"
#include "daemon/control/names.h"
#include "daemon/control/timestamp.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostQueued = 1000;
constexpr std::size_t kMostFinished = 1000;
constexpr std::size_t kMostRequests = 10'000;
constexpr std::size_t kHistory = 4096;
constexpr std::int64_t kRevisionBlock = 10'000;

v1::Job queued_job(const std::string& id, const v1::JobSpec& spec, const v1::RunConfig& resolved) {
  v1::Job job;
  job.set_name(job_resource(id));
  *job.mutable_spec() = spec;
  job.mutable_spec()->set_name(id);
  *job.mutable_resolved() = resolved;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_steps(resolved.training().steps());
  job.set_create_time(now_rfc3339());
  job.set_revision(1);
  return job;
}

/// What a repeat of the request is to find, where the client asked for it.
v1::JournalRecord record_of(const RequestKey& key, const v1::Job& job) {
  v1::JournalRecord record;
  if (key.id.empty()) return record;
  record.mutable_request()->set_request_id(key.id);
  record.mutable_request()->set_digest(key.digest);
  record.mutable_request()->set_resource(job.name());
  return record;
}

}  // namespace

JobStore::JobStore(const Options& options) : jobs_dir_(options.jobs_dir) {
  journal_ = std::make_unique<Journal>(options.journal, [this](std::string_view payload) {
    v1::JournalRecord record;
    if (!record.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
      throw DataLoss("journal: a record with a right digest cannot be parsed", "JOURNAL_CORRUPT");
    apply(record);
  });
  if (journal_->cut_bytes() > 0)
    spdlog::warn("journal: cut an unfinished append of {} bytes", journal_->cut_bytes());
  settle_after_restart(options.hold_unfinished);
}

void JobStore::apply(const v1::JournalRecord& record) {
  epoch_ = std::max({epoch_, record.epoch(), record.job().epoch()});
  next_job_ = std::max(next_job_, record.next_job());
  remember_request(record);
  if (!record.has_job()) return;
  const std::string id = parse_job_name(record.job().name());
  const auto found = by_id_.find(id);
  Entry& target = found == by_id_.end() ? add_entry(record.job()) : *found->second;
  target.job = record.job();
  target.reserved_revision = record.job().revision();
}

void JobStore::remember_request(const v1::JournalRecord& record) {
  if (!record.has_request()) return;
  const std::string& id = record.request().request_id();
  if (requests_.insert_or_assign(id, record.request()).second) request_order_.push_back(id);
}

void JobStore::settle_after_restart(bool hold) {
  for (auto& item : entries_) {
    v1::Job& job = item->job;
    if (is_final(job.state())) continue;
    item->held = hold;
    if (job.state() == v1::JOB_STATE_CANCELLING) {
      job.set_state(v1::JOB_STATE_CANCELLED);
      job.set_finish_time(now_rfc3339());
    } else if (job.state() == v1::JOB_STATE_HELD && job.attempt() == 0) {
      job.set_state(v1::JOB_STATE_QUEUED);
    } else if (job.state() != v1::JOB_STATE_QUEUED) {
      job.set_state(v1::JOB_STATE_RECOVERING);
    }
    job.clear_hold_reason();
  }
  drop_old_entries();
  try {
    compact();
  } catch (const Error& error) {
    spdlog::warn("journal is not compacted: {}", error.what());
  }
}

void JobStore::compact() {
  journal_->rewrite([this](const Journal::Visit& append) {
    v1::JournalRecord head;
    head.set_epoch(epoch_);
    head.set_next_job(next_job_);
    append(head.SerializeAsString());
    for (const auto& item : entries_) append(snapshot(*item).SerializeAsString());
    for (const auto& id : request_order_) {
      v1::JournalRecord record;
      *record.mutable_request() = requests_.at(id);
      append(record.SerializeAsString());
    }
  });
}

v1::JournalRecord JobStore::snapshot(const Entry& entry) const {
  v1::JournalRecord record;
  *record.mutable_job() = entry.job;
  record.mutable_job()->set_revision(std::max(entry.reserved_revision, entry.job.revision()));
  return record;
}

JobStore::Entry& JobStore::entry(const std::string& id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end())
    throw NotFound(fmt::format("job \"{}\" does not exist", id), "JOB_NOT_FOUND", {{"job", id}});
  return *found->second;
}

JobStore::Entry& JobStore::add_entry(v1::Job job) {
  auto item = std::make_unique<Entry>();
  item->number = next_number_++;
  const std::string id = parse_job_name(job.name());
  item->job = std::move(job);
  by_id_[id] = item.get();
  entries_.push_back(std::move(item));
  return *entries_.back();
}

std::string JobStore::make_up_id() {
  std::string id;
  do {
    id = fmt::format("job-{}", next_job_++);
  } while (by_id_.count(id) > 0 || std::filesystem::exists(jobs_dir_ / id));
  return id;
}

void JobStore::drop_old_entries() {
  auto finished = static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(),
                    [](const auto& item) { return is_final(item->job.state()); }));
  for (auto item = entries_.begin(); item != entries_.end() && finished > kMostFinished;) {
    if (!is_final((*item)->job.state())) {
      ++item;
      continue;
    }
    by_id_.erase(parse_job_name((*item)->job.name()));
    item = entries_.erase(item);
    --finished;
  }
  while (request_order_.size() > kMostRequests) {
    requests_.erase(request_order_.front());
    request_order_.pop_front();
  }
}

void JobStore::add_event(Entry& entry, v1::JobEvent event) {
  entry.job.set_revision(entry.job.revision() + 1);
  event.set_revision(entry.job.revision());
  if (event.has_job()) event.mutable_job()->set_revision(entry.job.revision());
  entry.history.push_back(std::move(event));
  if (entry.history.size() > kHistory) entry.history.pop_front();
  changed_.notify_all();
  subscribers_.mark(parse_job_name(entry.job.name()));
}

void JobStore::add_job_event(Entry& entry) {
  v1::JobEvent event;
  *event.mutable_job() = entry.job;
  add_event(entry, std::move(event));
}

void JobStore::save(Entry& entry, v1::JournalRecord record) {
  const std::int64_t reserved = entry.job.revision() + kRevisionBlock;
  *record.mutable_job() = entry.job;
  record.mutable_job()->set_revision(reserved);
  journal_->append(record.SerializeAsString());
  entry.reserved_revision = reserved;
}

void JobStore::try_save(Entry& entry, v1::JournalRecord record) {
  try {
    save(entry, std::move(record));
  } catch (const Error& error) {
    spdlog::error("{}: {}", entry.job.name(), error.what());
  }
}

std::optional<v1::Job> JobStore::find_request(const RequestKey& key) const {
  const std::lock_guard lock(mutex_);
  return find_request_locked(key);
}

std::optional<v1::Job> JobStore::find_request_locked(const RequestKey& key) const {
  if (key.id.empty()) return std::nullopt;
  const auto found = requests_.find(key.id);
  if (found == requests_.end()) return std::nullopt;
  if (found->second.digest() != key.digest)
    throw InvalidArgument(fmt::format("request_id {} was used before for another request", key.id),
                          "REQUEST_ID_REUSED",
                          {{"request_id", key.id}, {"resource", found->second.resource()}});
  return entry(parse_job_name(found->second.resource())).job;
}

v1::Job JobStore::submit(const v1::JobSpec& spec, const v1::RunConfig& resolved,
                         const RequestKey& key) {
  const std::lock_guard lock(mutex_);
  if (const auto first = find_request_locked(key)) return *first;
  if (closed_) throw Unavailable("the daemon is stopping", "STOPPING");
  const auto waiting = std::count_if(entries_.begin(), entries_.end(),
                                     [](const auto& item) { return !is_final(item->job.state()); });
  if (static_cast<std::size_t>(waiting) >= kMostQueued)
    throw ResourceExhausted(fmt::format("{} jobs are queued, no more are taken", waiting),
                            "QUEUE_FULL");
  const std::string id = spec.name().empty() ? make_up_id() : parse_job_name(spec.name());
  if (by_id_.count(id) > 0 || std::filesystem::exists(jobs_dir_ / id))
    throw AlreadyExists(fmt::format("a job named \"{}\" exists already; choose another name", id),
                        "JOB_EXISTS", {{"job", id}, {"field", "name"}});
  drop_old_entries();
  Entry fresh;
  fresh.job = queued_job(id, spec, resolved);
  fresh.job.set_output_dir((jobs_dir_ / id).string());
  v1::JournalRecord record = record_of(key, fresh.job);
  record.set_next_job(next_job_);
  save(fresh, record);
  Entry& added = add_entry(std::move(fresh.job));
  added.reserved_revision = fresh.reserved_revision;
  remember_request(record);
  changed_.notify_all();
  return added.job;
}

v1::Job JobStore::get(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return entry(id).job;
}

std::pair<std::vector<v1::Job>, std::int64_t> JobStore::list(std::int64_t position,
                                                             int size) const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::Job> jobs;
  std::int64_t last = position;
  for (const auto& item : entries_) {
    if (item->number <= position) continue;
    if (jobs.size() == static_cast<std::size_t>(size)) return {std::move(jobs), last};
    jobs.push_back(item->job);
    last = item->number;
  }
  return {std::move(jobs), 0};
}

v1::Job JobStore::cancel(const std::string& id, const RequestKey& key) {
  const Change locked(*this);
  if (const auto first = find_request_locked(key)) return *first;
  Entry& target = entry(id);
  const v1::JobState state = target.job.state();
  if (state == v1::JOB_STATE_CANCELLED || state == v1::JOB_STATE_CANCELLING) return target.job;
  if (is_final(state))
    throw FailedPrecondition(
        fmt::format("job \"{}\" has ended already ({}) and cannot be cancelled", id,
                    state == v1::JOB_STATE_SUCCEEDED ? "succeeded" : "failed"),
        "JOB_FINISHED", {{"job", id}});
  const v1::Job before = target.job;
  target.job.set_state(target.active ? v1::JOB_STATE_CANCELLING : v1::JOB_STATE_CANCELLED);
  if (!target.active) target.job.set_finish_time(now_rfc3339());
  target.job.clear_hold_reason();
  const v1::JournalRecord record = record_of(key, target.job);
  try {
    save(target, record);
  } catch (...) {
    target.job = before;
    throw;
  }
  remember_request(record);
  add_job_event(target);
  return target.job;
}

std::vector<v1::JobEvent> JobStore::wait_events(const std::string& id, std::int64_t revision,
                                                std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return closed_ || entry(id).job.revision() != revision; };
  changed_.wait_for(lock, timeout, ready);
  return events_after_locked(id, revision);
}

std::vector<v1::JobEvent> JobStore::events_after(const std::string& id,
                                                 std::int64_t revision) const {
  const std::lock_guard lock(mutex_);
  return events_after_locked(id, revision);
}

Subscription JobStore::subscribe(const std::string& id, std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  entry(id);
  return subscribers_.add(id, std::move(notify));
}

std::vector<v1::JobEvent> JobStore::events_after_locked(const std::string& id,
                                                        std::int64_t revision) const {
  const Entry& watched = entry(id);
  if (revision > watched.job.revision())
    throw OutOfRange(fmt::format("job \"{}\" is at revision {}, {} was asked for", id,
                                 watched.job.revision(), revision),
                     "REVISION_IN_FUTURE");
  if (revision == watched.job.revision()) {
    if (closed_) throw Unavailable("the daemon is stopping", "STOPPING");
    return {};
  }
  if (watched.history.empty() || watched.history.front().revision() > revision + 1)
    throw OutOfRange(fmt::format("job \"{}\": events after revision {} are no longer kept; watch "
                                 "again from the present state",
                                 id, revision),
                     "REVISION_COMPACTED");
  constexpr std::size_t kMostAtOnce = 256;
  const auto first = watched.history.begin() +
                     static_cast<std::ptrdiff_t>(revision + 1 - watched.history.front().revision());
  const auto count =
      std::min<std::size_t>(kMostAtOnce, static_cast<std::size_t>(watched.history.end() - first));
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

std::optional<std::string> JobStore::wait_for_job() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    for (const auto& item : entries_)
      if (!is_final(item->job.state()) && !item->held && !item->active)
        return parse_job_name(item->job.name());
    changed_.wait(lock);
  }
  return std::nullopt;
}

v1::Job JobStore::begin_attempt(const std::string& id) {
  const Change locked(*this);
  Entry& target = entry(id);
  check_internal(can_move(target.job.state(), v1::JOB_STATE_PREPARING),
                 "job {} cannot begin in state {}", id, static_cast<int>(target.job.state()));
  for (auto& item : entries_)
    if (is_final(item->job.state())) item->history.clear();
  target.active = true;
  target.job.set_state(v1::JOB_STATE_PREPARING);
  target.job.set_epoch(++epoch_);
  target.job.set_attempt(target.job.attempt() + 1);
  v1::JournalRecord record;
  record.set_epoch(epoch_);
  try_save(target, std::move(record));
  add_job_event(target);
  return target.job;
}

void JobStore::hold(const std::string& id, const std::string& reason) {
  const Change locked(*this);
  Entry& target = entry(id);
  if (!can_move(target.job.state(), v1::JOB_STATE_HELD)) return;
  target.held = true;
  target.job.set_state(v1::JOB_STATE_HELD);
  target.job.set_hold_reason(reason);
  try_save(target);
  add_job_event(target);
}

void JobStore::update(const std::string& id, const std::function<void(v1::Job*)>& change) {
  const Change locked(*this);
  Entry& target = entry(id);
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
  if (is_final(job.state()) && !is_final(before)) job.set_finish_time(now_rfc3339());
  if (is_final(job.state()) || job.state() == v1::JOB_STATE_RECOVERING) target.active = false;
  target.job = std::move(job);
  try_save(target);
  add_job_event(target);
}

void JobStore::publish_step(const std::string& id, const v1::StepMetrics& step) {
  const Change locked(*this);
  Entry& target = entry(id);
  target.job.set_step(step.step());
  *target.job.mutable_last_step() = step;
  v1::JobEvent event;
  *event.mutable_step() = step;
  add_event(target, std::move(event));
  if (target.job.revision() >= target.reserved_revision) try_save(target);
}

void JobStore::publish_validation(const std::string& id, const v1::ValidationMetrics& validation) {
  const Change locked(*this);
  Entry& target = entry(id);
  if (!target.job.has_first_validation()) *target.job.mutable_first_validation() = validation;
  *target.job.mutable_last_validation() = validation;
  try_save(target);
  v1::JobEvent event;
  *event.mutable_validation() = validation;
  add_event(target, std::move(event));
}

void JobStore::add_note(const std::string& id, const std::string& note) {
  const Change locked(*this);
  Entry& target = entry(id);
  constexpr int kMostNotes = 100;
  if (target.job.notes_size() < kMostNotes) target.job.add_notes(note);
  try_save(target);
  v1::JobEvent event;
  event.set_note(note);
  add_event(target, std::move(event));
}

bool JobStore::cancel_requested(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return entry(id).job.state() == v1::JOB_STATE_CANCELLING;
}

std::int64_t JobStore::epoch() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

void JobStore::close() {
  const Change locked(*this);
  closed_ = true;
  changed_.notify_all();
  subscribers_.mark_all();
}

}  // namespace meshloom::control
