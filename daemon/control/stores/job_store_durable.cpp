// SPDX-License-Identifier: Apache-2.0
// JobStore and the ledger: replay, what a restart makes of it, and what becomes durable.
#include <algorithm>

#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/stores/job_log.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {

JobEntry& JobStore::add_entry(std::unique_ptr<JobEntry> fresh) {
  fresh->number = next_number_++;
  JobEntry& added = *fresh;
  by_id_[added.id()] = &added;
  entries_.emplace(added.number, std::move(fresh));
  return added;
}

void JobStore::erase_entry(const std::string& id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  const std::int64_t number = found->second->number;
  std::erase_if(gone_checkpoints_, [prefix = checkpoint_resource(id, "")](const auto& item) {
    return item.first.starts_with(prefix);
  });
  behind_.erase(found->second);
  unfinished_.erase(number);
  detailed_.erase(number);
  by_id_.erase(found);
  entries_.erase(number);
}

void JobStore::apply(const v1::JournalRecord& record) {
  next_job_ = std::max(next_job_, record.next_job());
  if (const std::string& id = record.deleted_job(); !id.empty()) {
    erase_entry(id);
    removed_.insert(id);
  }
  if (record.has_deleted_checkpoint())
    gone_checkpoints_[record.deleted_checkpoint().name()] = record.deleted_checkpoint().stamp();
  if (record.has_job_edit()) return apply_edit(record.job_edit());
  if (record.has_job_note()) return apply_note(record.job_note());
  if (record.has_job_samples()) return apply_samples(record.job_samples());
  if (!record.has_job() && !record.has_state()) return;
  v1::Job job = record.has_job() ? record.job() : record.state();
  const std::string id = parse_job_name(job.name());
  const auto found = by_id_.find(id);
  if (record.has_state() && found == by_id_.end())
    throw DataLoss(fmt::format("journal: it changes job \"{}\", of which it does not know", id),
                   "JOURNAL_CORRUPT", {{"job", id}});
  removed_.erase(id);
  JobEntry& target =
      found == by_id_.end() ? add_entry(std::make_unique<JobEntry>(job, 0)) : *found->second;
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

void JobStore::apply_edit(const v1::StoredJobEdit& record) {
  const auto found = by_id_.find(parse_job_name(record.job()));
  if (found == by_id_.end() || !found->second->config) return;  // removed, or a summary, since then
  JobEntry& target = *found->second;
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

void JobStore::apply_note(const v1::StoredJobNote& record) {
  const auto found = by_id_.find(parse_job_name(record.job()));
  if (found == by_id_.end()) return;  // removed since then
  auto& notes = *found->second->job.mutable_notes();
  if (notes.size() == record.number()) *notes.Add() = record.note();
}

void JobStore::apply_samples(const v1::StoredJobSamples& record) {
  const auto found = by_id_.find(parse_job_name(record.job()));
  if (found == by_id_.end()) return;  // removed since then
  *found->second->job.mutable_samples() = record.samples();
}

void JobStore::show_limits(JobEntry& target) {
  const JobConfig& config = *target.config;
  target.job.mutable_spec()->set_step_limit(config.step_limit);
  target.job.mutable_spec()->set_time_limit_seconds(config.time_limit_seconds);
  target.job.set_steps(end_step(settings_of(config.resolved), config.step_limit));
}

void JobStore::settle_after_restart() {
  for (auto& [number, item] : entries_) {
    // Journals of versions without it: in order of submission.
    if (item->job.queue_place() == 0) item->job.set_queue_place(number * kQueueGap + 1);
    if (!base::is_final(item->job.state())) unfinished_.emplace(number, item.get());
    if (base::is_final(item->job.state()) && !item->job.summary()) detailed_.insert(number);
  }
  for (const auto& [number, item] : std::map(unfinished_)) settle_entry(*item);
  drop_details();
  remove_leftovers();
  set_unknown_aside();
}

void JobStore::settle_entry(JobEntry& entry) {
  v1::Job& job = entry.job;
  job.set_step(job.checkpoint_step());
  if (job.last_step().step() > job.step()) job.clear_last_step();
  job.clear_hold_reason();
  job.clear_hold_code();
  job.clear_tokenizing();
  if (job.state() == v1::JOB_STATE_CANCELLING) {
    base::move_to(job, v1::JOB_STATE_CANCELLED);
    return ended(entry);
  }
  if (job.state() == v1::JOB_STATE_PAUSING) base::move_to(job, v1::JOB_STATE_PAUSED);
  if (job.state() == v1::JOB_STATE_PAUSED && job.pause_code() != v1::PAUSE_CODE_UNSPECIFIED) return;
  if (job.state() == v1::JOB_STATE_PAUSED) {
    queue_first(entry);
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

void JobStore::snapshot(const Ledger::Visit& append) const {
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
    for (const auto& item : entries_) numbers.push_back(item.first);
  }
  for (const v1::JournalRecord& record : records) append(record);
  // One by one: others do not wait for all of them, and only this thread takes jobs away. What
  // changes meanwhile is appended behind.
  for (const std::int64_t number : numbers) {
    v1::JournalRecord record;
    SharedJobConfig config;
    {
      const std::lock_guard lock(mutex_);
      const JobEntry& item = *entries_.at(number);
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

void JobStore::on_durable(Ledger::Ticket upto) {
  // Before they are told, so that who hears of a job's end finds it in the log. Without the mutex:
  // disks are slow, and only this thread tells what must be durable and takes jobs away.
  std::map<std::string, std::string> logs;
  {
    const std::lock_guard lock(mutex_);
    for (const JobEntry* late : behind_) logs[late->id()] = late->log_lines(upto);
  }
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
  drop_details();
  changed_.notify_all();
}

void JobStore::take_effect(v1::JournalRecord record) {
  if (record.has_job_edit()) {
    take_edit(record.job_edit());
  } else if (record.has_job()) {
    take_submitted(std::move(record));
  } else {
    erase_entry(record.deleted_job());
    removed_.insert(record.deleted_job());
  }
}

void JobStore::on_refused(Ledger::Ticket ticket) {
  const Change locked(*this);
  if (const auto refused = forget(ticket); refused && refused->has_job_edit())
    if (const auto edited = by_id_.find(parse_job_name(refused->job_edit().job()));
        edited != by_id_.end())
      edited->second->editing = false;
  changed_.notify_all();
}

void JobStore::drop_details() {
  while (detailed_.size() > options_.most_detailed) {
    JobEntry& oldest = *entries_.at(*detailed_.begin());
    if (oldest.behind()) return;
    oldest.summarize();
    detailed_.erase(detailed_.begin());
  }
}

}  // namespace meshloom::control
