// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_store.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/stores/labels.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/page_room.h"
#include "daemon/control/stores/request_log.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr int kMostCalls = 8;

v1::Job queued_job(const v1::JobSpec& spec, const v1::RunConfig& resolved, std::int64_t revision,
                   const Identity& by) {
  v1::Job job;
  job.set_owner(by.owner());
  *job.mutable_spec() = spec;
  *job.mutable_resolved() = resolved;
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_steps(end_step(settings_of(resolved), spec.step_limit()));
  job.set_create_time(base::now_rfc3339());
  job.mutable_goodput()->set_until(base::now_seconds());
  job.set_revision(revision);
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
    : JobProgress(options), calls_(options.follow_timeout, kMostCalls) {}

bool JobStore::has_folder(const std::string& id) const {
  return std::filesystem::exists(options_.jobs_dir / id);
}

void JobStore::check_name_is_free(const std::string& id, bool is_there) const {
  if (jobs_.find(id) != nullptr || removed_.count(id) > 0 || is_there)
    throw AlreadyExists(fmt::format("a job named \"{}\" exists already; choose another name", id),
                        "JOB_EXISTS", {{"job", id}, {"field", "name"}});
}

void JobStore::check_room(const Identity& by) const {
  if (closed_) throw Unavailable("the daemon is stopping", "STOPPING");
  Limits::Taken taken = jobs_of(by.owner());
  for (const Undecided& item : undecided()) {
    ++taken.all;
    taken.own += item.record.has_job() && item.record.job().owner() == by.owner() ? 1 : 0;
  }
  options_.limits.check(LimitKind::kJobs, by.owner(), taken);
}

Limits::Taken JobStore::jobs_of(const std::string& owner) const {
  Limits::Taken taken;
  taken.all = static_cast<std::int64_t>(jobs_.unfinished().size());
  for (const auto& [number, job] : jobs_.unfinished()) taken.own += job->job.owner() == owner;
  return taken;
}

std::map<std::string, std::int64_t> JobStore::count_by_owner() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::int64_t> count;
  for (const auto& [number, job] : jobs_.unfinished()) ++count[job->job.owner()];
  return count;
}

std::map<std::string, std::string> JobStore::owners() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> owners;
  for (const auto& [id, job] : jobs_.by_id()) owners[id] = job->job.owner();
  return owners;
}

v1::Job JobStore::change(const std::string& id, const RequestKey& key, const Make& make) {
  Ledger::Ticket ticket = 0;
  {
    Change locked(*this);
    // Behind the record that deletes the job, one of its state would be of a job that the journal
    // does not know.
    wait_until_decided(locked.lock(), id, key);
    if (const auto first = ledger().find_request(key)) return repeat(*first);
    JobEntry& target = own(id, key);
    ticket = make(target, RequestLog::record_of(key, target.job.name()));
  }
  ledger().wait(ticket);
  return get(id);
}

v1::Job JobStore::submit(const v1::JobSpec& spec, const v1::RunConfig& resolved,
                         const RequestKey& key) {
  // What is large is copied before others have to wait.
  v1::JournalRecord record, effect;
  *record.mutable_job() = queued_job(spec, resolved, kFirstRevision, key.by);
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
    const bool waited = wait_until_decided(lock, wanted, key);
    if (const auto first = ledger().find_request(key)) return repeat(*first);
    if (waited && folders.erase(id) > 0) {  // what was decided may have removed the folder
      looked_at.erase(id);
      continue;
    }
    check_room(key.by);
    if (wanted.empty() && (id.empty() || folders.contains(id) || !is_free(id))) {
      do id = fmt::format("job-{}", next_job_++);
      while (!is_free(id));
      continue;
    }
    check_name_is_free(id, folders.contains(id));
    const std::int64_t place = last_place() + JobTable::kQueueGap;
    for (v1::Job* job : {record.mutable_job(), effect.mutable_job(), &answer}) {
      job->set_name(job_resource(id));
      job->mutable_spec()->set_name(id);
      job->set_queue_place(place);
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

void JobStore::check_submission(const v1::JobSpec& spec, const Identity& by) const {
  const std::string wanted = spec.name().empty() ? "" : parse_job_name(spec.name());
  while (true) {
    const bool there = !wanted.empty() && has_folder(wanted);
    std::unique_lock lock(mutex_);
    if (wait_until_decided(lock, wanted, {})) continue;  // that may have removed the folder
    check_room(by);
    if (!wanted.empty()) check_name_is_free(wanted, there);
    return;
  }
}

std::optional<v1::Job> JobStore::active_job() const {
  v1::Job job;
  SharedJobConfig config;
  {
    const std::lock_guard lock(mutex_);
    const auto active = std::find_if(jobs_.all().begin(), jobs_.all().end(),
                                     [](const auto& item) { return item.second->active; });
    if (active == jobs_.all().end()) return std::nullopt;
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
    const JobEntry& found = jobs_.at(id);
    job = found.view();
    config = found.config;
  }
  put_config(config, &job);
  return job;
}

v1::JobState JobStore::state(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return jobs_.at(id).told().state();
}

std::pair<std::vector<v1::Job>, std::int64_t> JobStore::list(std::int64_t position, int size,
                                                             const Labels& labels,
                                                             const IsShown& is_shown) const {
  const std::lock_guard lock(mutex_);
  return page_of(jobs_.all(), position, size, [&](const auto& item) {
    const bool shown = has_labels(item->told().spec().labels(), labels) &&
                       (!is_shown || is_shown(ownership_of(item->told())));
    return shown ? std::optional(item->summary()) : std::nullopt;
  });
}

std::optional<Ownership> JobStore::ownership(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const JobEntry* found = jobs_.find(id);
  return found == nullptr ? std::nullopt : std::optional(ownership_of(found->told()));
}

JobEntry& JobStore::own(const std::string& id, const RequestKey& key) const {
  JobEntry* found = jobs_.find(id);
  if (!key.by.is_admin() && (found == nullptr || found->job.owner() != key.by.owner()))
    throw NotFound(fmt::format("job \"{}\" does not exist", id), "JOB_NOT_FOUND", {{"job", id}});
  return jobs_.at(id);
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
      if (!target.active) jobs_.end(target);
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

void JobStore::close() {
  calls_.stop();
  const Change locked(*this);
  closed_ = true;
  changed_.notify_all();
  subscribers_.mark_all();
}

}  // namespace meshloom::control
