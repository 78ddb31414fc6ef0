// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_table.h"

#include <algorithm>

#include "daemon/base/nearest_name.h"
#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "kernels/base/error.h"

namespace meshloom::control {

bool waits_for_ranks(const JobEntry& entry) {
  const v1::JobState state = entry.job.state();
  return !entry.active && (state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_RECOVERING ||
                           state == v1::JOB_STATE_HELD);
}

JobEntry* JobTable::find(const std::string& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

JobEntry& JobTable::at(const std::string& id) const {
  if (JobEntry* found = find(id)) return *found;
  throw NotFound(fmt::format("job \"{}\" does not exist{}", id, hint_of(id)), "JOB_NOT_FOUND",
                 {{"job", id}});
}

std::string JobTable::hint_of(const std::string& id) const {
  constexpr std::size_t kMostNames = 1000;
  std::vector<std::string> names;
  for (auto known = by_id_.begin(); known != by_id_.end() && names.size() < kMostNames; ++known)
    names.push_back(known->first);
  return base::nearest_hint(id, names);
}

JobEntry& JobTable::add(std::unique_ptr<JobEntry> fresh) {
  fresh->number = next_number_++;
  JobEntry& added = *fresh;
  by_id_[added.id()] = &added;
  entries_.emplace(added.number, std::move(fresh));
  return added;
}

void JobTable::submit(std::unique_ptr<JobEntry> fresh) {
  JobEntry& added = add(std::move(fresh));
  unfinished_.emplace(added.number, &added);
}

void JobTable::erase(const std::string& id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  const std::int64_t number = found->second->number;
  unfinished_.erase(number);
  detailed_.erase(number);
  by_id_.erase(found);
  entries_.erase(number);
}

void JobTable::settle() {
  for (auto& [number, item] : entries_) {
    // Journals of versions without it: in order of submission.
    if (item->job.queue_place() == 0) item->job.set_queue_place(number * kQueueGap + 1);
    if (!base::is_final(item->job.state())) unfinished_.emplace(number, item.get());
    if (base::is_final(item->job.state()) && !item->job.summary()) detailed_.insert(number);
  }
}

void JobTable::end(JobEntry& entry) {
  entry.job.set_finish_time(base::now_rfc3339());
  entry.job.clear_pause_code();
  unfinished_.erase(entry.number);
  just_ended_.push_back(entry.id());
  detailed_.insert(entry.number);
}

void JobTable::forget_ended_events() {
  for (const std::string& old : just_ended_)
    if (JobEntry* ended = find(old)) ended->forget_events();
  just_ended_.clear();
}

void JobTable::drop_details(std::size_t most) {
  while (detailed_.size() > most) {
    JobEntry& oldest = *entries_.at(*detailed_.begin());
    if (oldest.behind()) return;
    oldest.summarize();
    detailed_.erase(detailed_.begin());
  }
}

const JobEntry* JobTable::first_waiting() const {
  const JobEntry* next = nullptr;
  for (const auto& [number, item] : unfinished_) {
    const v1::JobState state = item->job.state();
    if (item->active || state == v1::JOB_STATE_HELD || state == v1::JOB_STATE_PAUSED) continue;
    if (!next || take_order(*item) < take_order(*next)) next = item;
  }
  return next;
}

std::vector<JobEntry*> JobTable::queue() const {
  std::vector<JobEntry*> waiting;
  for (const auto& [number, item] : unfinished_)
    if (waits_for_ranks(*item)) waiting.push_back(item);
  std::sort(waiting.begin(), waiting.end(), [](const JobEntry* a, const JobEntry* b) {
    return a->job.queue_place() < b->job.queue_place();
  });
  return waiting;
}

std::int64_t JobTable::last_place() const {
  std::int64_t last = 1;
  for (const auto& [number, item] : unfinished_) last = std::max(last, item->job.queue_place());
  return last;
}

void JobTable::queue_last(JobEntry& target) const {
  const std::int64_t place = last_place() + kQueueGap;
  queue_first(target);
  target.resumed = false;
  target.job.set_queue_place(place);
}

void JobTable::queue_first(JobEntry& target) const {
  const auto waiting = queue();
  const std::int64_t place =
      waiting.empty() ? target.job.queue_place() : waiting.front()->job.queue_place() - kQueueGap;
  base::move_to(target.job, v1::JOB_STATE_QUEUED);
  target.resumed = true;
  target.job.clear_pause_code();
  target.job.set_stalled_attempts(0);
  target.job.set_queue_place(place);
}

}  // namespace meshloom::control
