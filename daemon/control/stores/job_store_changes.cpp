// SPDX-License-Identifier: Apache-2.0
// JobStore: what clients change of jobs that there are: pause and resume, order, labels, settings.
#include <algorithm>

#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/access/sharing.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/labels.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr int kMostEdits = 100;

void check_not_ended(const std::string& id, const v1::Job& job, const char* what) {
  const std::string state = base::table_of<v1::JobState>().name(job.state());
  if (base::is_final(job.state()))
    throw FailedPrecondition(
        fmt::format("job \"{}\" has ended already ({}) and cannot be {}", id, state, what),
        "JOB_FINISHED", {{"job", id}, {"state", state}});
  if (job.state() == v1::JOB_STATE_CANCELLING)
    throw FailedPrecondition(
        fmt::format("job \"{}\" is being cancelled and cannot be {}", id, what), "JOB_CANCELLING",
        {{"job", id}, {"state", state}});
}

void check_waits(const JobEntry& entry) {
  if (waits_for_ranks(entry)) return;
  const std::string state = base::table_of<v1::JobState>().name(entry.job.state());
  throw FailedPrecondition(
      fmt::format("job \"{}\" does not wait in the queue: it is {}", entry.id(), state),
      "JOB_NOT_QUEUED", {{"job", entry.id()}, {"state", state}});
}

void check_editable(const JobEntry& target, const v1::JobSpec& before) {
  const std::string id = target.id();
  check_not_ended(id, target.job, "edited");
  const v1::JobSettings newest = settings_of(target.config->resolved);
  if (newest.SerializeAsString() != settings_of(before.run()).SerializeAsString() ||
      target.config->step_limit != before.step_limit() ||
      target.config->time_limit_seconds != before.time_limit_seconds())
    throw Aborted(fmt::format("job \"{}\" was edited meanwhile; look at it and try again", id),
                  "EDITED_MEANWHILE", {{"job", id}});
}

}  // namespace

v1::Job JobStore::pause(const std::string& id, v1::PauseCode code, const RequestKey& key) {
  return change(id, key, [&](JobEntry& target, const Request& request) {
    check_not_ended(id, target.job, "paused");
    const v1::JobState state = target.job.state();
    const bool paused = state == v1::JOB_STATE_PAUSED || state == v1::JOB_STATE_PAUSING;
    const auto apply = [&] {
      // A client's pause outlasts a drain.
      if (!paused || code == v1::PAUSE_CODE_CLIENT) target.job.set_pause_code(code);
      if (!paused)
        base::move_to(target.job, target.active ? v1::JOB_STATE_PAUSING : v1::JOB_STATE_PAUSED);
      target.job.clear_hold_reason();
      target.job.clear_hold_code();
    };
    return alter(target, apply, request);
  });
}

void JobStore::give_turn() {
  const std::chrono::seconds most(options_.limits.max_running_seconds());
  if (most.count() == 0) return;
  std::string id;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, item] : jobs_.unfinished()) {
      const bool runs = item->active && item->job.state() == v1::JOB_STATE_RUNNING;
      if (!runs || std::chrono::steady_clock::now() - item->taken < most) continue;
      const std::vector<JobEntry*> queue = jobs_.queue();
      const bool other_waits = std::any_of(queue.begin(), queue.end(), [&](const JobEntry* one) {
        return one->job.state() != v1::JOB_STATE_HELD && one->job.owner() != item->job.owner();
      });
      if (other_waits) id = item->id();
    }
  }
  if (id.empty()) return;
  spdlog::info("job {}: it has had the ranks for {} s and gives others their turn", id,
               most.count());
  pause(id, v1::PAUSE_CODE_TURN, {});
}

v1::Job JobStore::resume(const std::string& id, const RequestKey& key) {
  return change(id, key, [&](JobEntry& target, const Request& request) {
    if (target.job.state() != v1::JOB_STATE_PAUSED) {
      const std::string state = base::table_of<v1::JobState>().name(target.job.state());
      throw FailedPrecondition(fmt::format("job \"{}\" is not paused: it is {}", id, state),
                               "JOB_NOT_PAUSED", {{"job", id}, {"state", state}});
    }
    const auto wait_again = [&] {
      jobs_.queue_first(target);
      // Of a job that is resumed the owner alone says when, and others wait since long.
      if (key.by.is_admin()) return;
      target.resumed = false;
      target.job.set_queue_place(last_place() + JobTable::kQueueGap);
    };
    return alter(target, wait_again, request);
  });
}

std::vector<std::string> JobStore::end_drain() {
  std::vector<std::string> ids;
  Ledger::Ticket ticket = 0;
  {
    const Change locked(*this);
    for (const auto& [number, item] : jobs_.unfinished()) {
      if (item->job.pause_code() != v1::PAUSE_CODE_DRAIN) continue;
      JobEntry& target = *item;
      ticket = alter(target, [&] {
        // One that is being saved goes on as soon as it is: update().
        target.job.clear_pause_code();
        if (target.job.state() == v1::JOB_STATE_PAUSED) jobs_.queue_first(target);
      });
      ids.push_back(target.id());
    }
  }
  if (ticket > 0) ledger().wait_kept(ticket);
  return ids;
}

std::int64_t JobStore::last_place() const {
  std::int64_t last = jobs_.last_place();
  for (const Undecided& item : undecided())
    if (item.record.has_job()) last = std::max(last, item.record.job().queue_place());
  return last;
}

v1::Job JobStore::share(const std::string& id, const std::string& with, bool take_back,
                        const RequestKey& key) {
  return change(id, key, [&](JobEntry& target, const Request& request) {
    auto names = target.job.shared_with();
    share_with(with, take_back, &names);
    return alter(
        target, [&] { *target.job.mutable_shared_with() = names; }, request);
  });
}

v1::Job JobStore::give(const std::string& id, const std::string& owner, const RequestKey& key) {
  return change(id, key, [&](JobEntry& target, const Request& request) {
    return alter(
        target, [&] { target.job.set_owner(owner); }, request);
  });
}

v1::Job JobStore::move(const std::string& id, Place place, const std::string& other,
                       const RequestKey& key) {
  return change(id, key, [&](JobEntry& target, const Request& request) {
    check_waits(target);
    if (place != Place::kFirst) check_waits(own(other, key));
    if (place != Place::kFirst && other == id)
      throw InvalidArgument(fmt::format("job \"{}\" cannot be moved to itself", id),
                            "INVALID_ARGUMENT", {{"field", "place"}});
    std::vector<JobEntry*> waiting = jobs_.queue();
    if (!key.by.is_admin())
      std::erase_if(waiting,
                    [&](const JobEntry* one) { return one->job.owner() != key.by.owner(); });
    const std::vector<JobEntry*> before = waiting;
    std::erase(waiting, &target);
    std::size_t at = 0;
    if (place != Place::kFirst) {
      target.resumed = false;
      const auto found = std::find(waiting.begin(), waiting.end(), &jobs_.at(other));
      at = static_cast<std::size_t>(found - waiting.begin()) + (place == Place::kAfter ? 1 : 0);
    }
    if (key.by.is_admin()) return put_at(target, std::move(waiting), at, request);
    waiting.insert(waiting.begin() + static_cast<std::ptrdiff_t>(at), &target);
    return take_places_of(before, waiting, target, request);
  });
}

Ledger::Ticket JobStore::take_places_of(const std::vector<JobEntry*>& before,
                                        const std::vector<JobEntry*>& after, const JobEntry& target,
                                        const Request& request) {
  std::vector<std::int64_t> places;
  for (const JobEntry* one : before) places.push_back(one->job.queue_place());
  std::sort(places.begin(), places.end());
  Ledger::Ticket ticket = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    JobEntry& one = *after[i];
    if (one.job.queue_place() == places[i] && &one != &target) continue;
    ticket = alter(
        one, [&] { one.job.set_queue_place(places[i]); }, &one == &target ? request : std::nullopt);
  }
  return ticket;
}

Ledger::Ticket JobStore::put_at(JobEntry& target, std::vector<JobEntry*> queue, std::size_t at,
                                const Request& request) {
  const auto place_of = [&](std::size_t i) { return queue[i]->job.queue_place(); };
  const std::int64_t before = at > 0          ? place_of(at - 1)
                              : queue.empty() ? 0
                                              : place_of(0) - 2 * JobTable::kQueueGap;
  const std::int64_t behind = at < queue.size() ? place_of(at) : before + 2 * JobTable::kQueueGap;
  const auto put = [&](JobEntry& item, std::int64_t place) {
    return alter(
        item, [&] { item.job.set_queue_place(place); }, &item == &target ? request : std::nullopt);
  };
  if (behind - before > 3) return put(target, (before + (behind - before) / 2) | 1);
  // No room between the two: all get places anew.
  queue.insert(queue.begin() + static_cast<std::ptrdiff_t>(at), &target);
  Ledger::Ticket ticket = 0;
  for (std::size_t i = 0; i < queue.size(); ++i)
    ticket = put(*queue[i], static_cast<std::int64_t>(i + 1) * JobTable::kQueueGap + 1);
  return ticket;
}

v1::Job JobStore::label(const std::string& id, const Labels& set,
                        const std::vector<std::string>& remove, const RequestKey& key) {
  return change(id, key, [&](JobEntry& target, const Request& request) {
    Labels labels = target.job.spec().labels();
    for (const std::string& name : remove) labels.erase(name);
    for (const auto& [name, value] : set) labels[name] = value;
    check_labels(labels, "set");
    const auto apply = [&] { *target.job.mutable_spec()->mutable_labels() = std::move(labels); };
    return alter(target, apply, request);
  });
}

v1::Job JobStore::edit(const std::string& id, const v1::JobSpec& before, const v1::JobSpec& after,
                       const RequestKey& key) {
  change(id, key, [&](JobEntry& target, const Request& request) {
    check_editable(target, before);
    const std::int64_t begun =
        target.active ? target.begun : std::max(target.begun, target.job.checkpoint_step());
    check_ahead(before, after, begun, target.job.ran_seconds());
    if (target.config->edits.size() >= kMostEdits)
      throw ResourceExhausted(
          fmt::format("job \"{}\" was edited {} times, no more edits are taken", id, kMostEdits),
          "TOO_MANY_EDITS", {{"job", id}});
    v1::JournalRecord record;
    v1::StoredJobEdit& edit = *record.mutable_job_edit();
    edit.set_job(target.job.name());
    edit.mutable_edit()->set_after_step(begun);
    *edit.mutable_edit()->mutable_after() = settings_of(after.run());
    edit.mutable_edit()->set_time(base::now_rfc3339());
    edit.set_step_limit(after.step_limit());
    edit.set_time_limit_seconds(after.time_limit_seconds());
    if (request) *record.mutable_request() = *request;
    target.editing = true;
    return propose(record, record, Ledger::Need::kRefusable);
  });
  Ledger::Ticket ticket = 0;
  {
    // It has taken effect and is told with the state that was appended then.
    const std::lock_guard lock(mutex_);
    ticket = jobs_.at(id).newest_ticket();
  }
  if (ticket > 0) ledger().wait(ticket);
  return get(id);
}

std::vector<JobStore::EditMark> JobStore::edit_marks(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const SharedJobConfig& config = jobs_.at(id).config;
  std::vector<EditMark> marks;
  for (std::size_t i = 0; config && i < config->edit_numbers.size(); ++i)
    marks.push_back({config->edit_numbers[i], config->edits[static_cast<int>(i)].after_step()});
  return marks;
}

}  // namespace meshloom::control
