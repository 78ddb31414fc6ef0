// SPDX-License-Identifier: Apache-2.0
// JobStore: deleting jobs that have ended, and checkpoints.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "daemon/base/states.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/lost_folder.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_log.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/files/unfinished_folder.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

/// Tests whether a config reads a checkpoint or an export whose whole name passes, as far as its
/// paths are in `followed`.
ConfigTest reads(const std::map<std::string, std::string>& followed,
                 std::function<bool(const std::string& name)> is_meant) {
  return [&followed, is_meant = std::move(is_meant)](const v1::RunConfig& config) {
    const std::string& resume_from = config.checkpoint().resume_from();
    if (names_a_job(resume_from) && is_meant(resume_from)) return true;
    const auto paths = checkpoint_paths(config);
    return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
      const auto at = followed.find(path);
      return at != followed.end() && is_meant(at->second);
    });
  };
}

}  // namespace

void JobStore::check_removable(const std::string& id, const Followed& followed) const {
  const JobEntry& target = jobs_.at(id);
  if (!base::is_final(target.told().state()))
    throw FailedPrecondition(
        fmt::format("job \"{}\" has not ended; cancel it before it is deleted", id),
        "JOB_NOT_FINISHED", {{"job", id}});
  const std::string prefix = fmt::format("checkpoints/{}/", id);
  // Before all else: who lets a pin go has become a user.
  if (const auto reader = options_.uses->holder_below(prefix))
    throw JobInUse(fmt::format("{} reads a checkpoint of job \"{}\"", *reader, id), id, *reader);
  const ConfigTest uses =
      reads(followed, [&](const std::string& name) { return name.starts_with(prefix); });
  if (const auto user = find_user(uses))
    throw JobInUse(
        fmt::format("job \"{}\" begins with a checkpoint of \"{}\" and has not ended", *user, id),
        id, *user);
  if (const auto user = options_.uses->config_beside_jobs(uses))
    throw JobInUse(fmt::format("{} is of a folder of job \"{}\"", *user, id), id, *user);
}

std::vector<std::string> JobStore::paths_beside(const Followed& known) const {
  std::set<std::string> paths;
  const ConfigTest collect = [&](const v1::RunConfig& config) {
    for (std::string& path : checkpoint_paths(config))
      if (!known.contains(path)) paths.insert(std::move(path));
    return false;
  };
  find_user(collect);
  options_.uses->config_beside_jobs(collect);
  return {paths.begin(), paths.end()};
}

JobStore::Followed JobStore::follow(const std::vector<std::string>& paths) const {
  auto name_of = options_.follow;
  if (!name_of)
    name_of = [jobs = options_.jobs_dir, data = options_.data_dir](const std::string& path) {
      return checkpoint_name_at(jobs, data, path);
    };
  return calls_.run<Followed>([name_of, paths] {
    Followed followed;
    for (const std::string& path : paths) followed[path] = name_of(path);
    return followed;
  });
}

void JobStore::decide(const std::string& id, const RequestKey& key, Removal& removal) {
  Followed followed;
  Ledger::Ticket ticket = 0;
  while (ticket == 0) {
    std::vector<std::string> paths;
    {
      Change locked(*this);
      wait_until_decided(locked.lock(), id, key);
      if (removal.is_answered()) return;
      removal.check(followed);
      // Behind the check: what it has seen with a path that is not known is there still, or has
      // ended.
      paths = paths_beside(followed);
      if (paths.empty()) ticket = removal.append_record();
    }
    if (!paths.empty()) followed.merge(follow(paths));
  }
  ledger().wait(ticket);
}

std::optional<std::string> JobStore::user_by_config(const ConfigTest& test) const {
  const std::lock_guard lock(mutex_);
  const auto job = find_user(test);
  return job ? std::optional(job_resource(*job)) : std::nullopt;
}

void JobStore::check_forgettable(const JobEntry& target, const GoneCheckpoint& gone,
                                 const Followed& followed) const {
  const std::string name = checkpoint_resource(target.id(), gone.folder);
  const auto refuse = [&](const std::string& text, const std::string& user) {
    throw FailedPrecondition(text, "CHECKPOINT_IN_USE", {{"checkpoint", name}, {"used_by", user}});
  };
  // Before all else: who lets a pin go has become a user.
  if (const auto reader = options_.uses->holder_of(name))
    refuse(fmt::format("{} reads {}", *reader, name), *reader);
  const ConfigTest uses = reads(followed, [&](const std::string& read) { return read == name; });
  if (const auto user = find_user(uses))
    refuse(fmt::format("job \"{}\" begins with {} and has not ended", *user, name), *user);
  if (const auto user = options_.uses->config_beside_jobs(uses))
    refuse(fmt::format("{} is of {}", *user, name), *user);
  if (!gone.newest) return;
  if (!base::is_final(target.told().state()))
    refuse(fmt::format("{} is the newest of job \"{}\", which has not ended and goes on from it",
                       name, target.id()),
           target.id());
  if (!gone.force)
    throw FailedPrecondition(
        fmt::format(
            "{} is the newest of its job; --force (force in the request) deletes it all the same",
            name),
        "CHECKPOINT_IS_LAST", {{"checkpoint", name}});
}

Hold JobStore::pin_checkpoint(const CheckpointName& name, const std::string& user) const {
  const std::string whole = checkpoint_resource(name.job, name.folder);
  std::unique_lock lock(mutex_);
  wait_until_decided(lock, name.job, {});
  jobs_.at(name.job);
  if (gone_checkpoints_.contains(whole))
    throw NotFound(fmt::format("{} was deleted", whole), train::kCheckpointNotFound,
                   {{"checkpoint", whole}});
  return options_.uses->hold(whole, user);
}

class JobStore::CheckpointRemoval final : public Removal {
 public:
  CheckpointRemoval(JobStore& store, const std::string& id, const GoneCheckpoint& gone,
                    const RequestKey& key)
      : store_(store),
        id_(id),
        gone_(gone),
        key_(key),
        stamp_(checkpoint_stamp(checkpoint_path(store.options_.jobs_dir / id, gone.folder))) {}

  bool is_answered() const override { return store_.ledger().find_request(key_).has_value(); }
  void check(const Followed& followed) const override {
    store_.check_forgettable(store_.own(id_, key_), gone_, followed);
  }
  Ledger::Ticket append_record() override {
    const std::string name = checkpoint_resource(id_, gone_.folder);
    JobEntry& target = store_.jobs_.at(id_);
    target.hold_back();
    if (gone_.newest) target.set_checkpoint_step(gone_.newest_left);
    if (std::filesystem::path(target.job.hf_folder()).filename() == gone_.folder)
      target.job.clear_hf_folder();
    v1::JournalRecord record = state_record(target);
    if (const auto request = RequestLog::record_of(key_, target.job.name()))
      *record.mutable_request() = *request;
    store_.gone_checkpoints_[name] = stamp_;
    record.mutable_deleted_checkpoint()->set_name(name);
    record.mutable_deleted_checkpoint()->set_stamp(stamp_);
    const Ledger::Ticket ticket = store_.keep(std::move(record));
    store_.add_job_event(target, ticket);
    return ticket;
  }

 private:
  JobStore& store_;
  const std::string& id_;
  const GoneCheckpoint& gone_;
  const RequestKey& key_;
  const std::string stamp_;  ///< of the folder, before the store's mutex is taken
};

void JobStore::delete_checkpoint(const std::string& id, const GoneCheckpoint& gone,
                                 const RequestKey& key) {
  CheckpointRemoval removal(*this, id, gone, key);
  decide(id, key, removal);
  remove_gone(checkpoint_resource(id, gone.folder));
}

void JobStore::remove_gone(const std::string& checkpoint) {
  const std::lock_guard one_at_a_time(removal_mutex_);
  std::string stamp;
  {
    const std::lock_guard lock(mutex_);
    const auto gone = gone_checkpoints_.find(checkpoint);
    if (gone == gone_checkpoints_.end()) return;
    stamp = gone->second;
  }
  const CheckpointName name = parse_checkpoint_name(checkpoint);
  const auto path = checkpoint_path(options_.jobs_dir / name.job, name.folder);
  // One that was saved since under its name is another one.
  if (!stamp.empty() && checkpoint_stamp(path) == stamp)
    train::discard_folder(*options_.files, path);
  const std::lock_guard lock(mutex_);
  gone_checkpoints_.erase(checkpoint);
}

void JobStore::settle_after_restart() {
  JobProgress::settle_after_restart();
  for (const std::string& id : std::set(removed_)) try_removal(id, [&] { remove_folder(id); });
  for (const auto& gone : std::map(gone_checkpoints_))
    try_removal(gone.first, [&] { remove_gone(gone.first); });
  for (const auto& job : jobs_.by_id())
    try_removal(job.first,
                [&] { remove_job_leftovers(*options_.files, options_.jobs_dir / job.first); });
  const auto is_unknown = [&](const std::string& id) {
    return jobs_.find(id) == nullptr && !removed_.contains(id);
  };
  LostFolder(options_.jobs_dir.parent_path())
      .take(entries_of(options_.jobs_dir, is_unknown), "jobs");
}

class JobStore::JobRemoval final : public Removal {
 public:
  JobRemoval(JobStore& store, const std::string& id, const RequestKey& key)
      : store_(store), id_(id), key_(key) {}

  bool is_answered() const override {
    return store_.removed_.contains(id_) || store_.ledger().find_request(key_).has_value();
  }
  void check(const Followed& followed) const override {
    store_.own(id_, key_);
    store_.check_removable(id_, followed);
  }
  Ledger::Ticket append_record() override {
    v1::JournalRecord record;
    record.set_deleted_job(id_);
    if (auto request = RequestLog::record_of(key_, job_resource(id_))) {
      request->set_gone(true);
      *record.mutable_request() = *request;
    }
    return store_.propose(record, record, Ledger::Need::kRefusableUrgent);
  }

 private:
  JobStore& store_;
  const std::string& id_;
  const RequestKey& key_;
};

void JobStore::remove(const std::string& id, const RequestKey& key) {
  JobRemoval removal(*this, id, key);
  decide(id, key, removal);
  remove_folder(id);
}

void JobStore::remove_folder(const std::string& id) {
  const std::lock_guard one_at_a_time(removal_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (removed_.count(id) == 0) return;
  }
  options_.files->remove_all(options_.jobs_dir / id);
  std::error_code ignored;
  if (std::filesystem::exists(options_.jobs_dir, ignored))
    options_.files->sync_directory(options_.jobs_dir);
  const std::lock_guard lock(mutex_);
  removed_.erase(id);
}

std::vector<std::string> JobStore::expired(const Keep& keep,
                                           std::chrono::system_clock::time_point now) const {
  std::vector<std::pair<std::string, std::string>> by_end;  // RFC 3339 in UTC sorts as text
  const std::lock_guard lock(mutex_);
  for (const auto& [number, item] : jobs_.all())
    if (base::is_final(item->told().state()))
      by_end.emplace_back(item->job.finish_time(), item->id());
  std::sort(by_end.begin(), by_end.end());
  const auto surplus =
      keep.most_ended > 0 ? static_cast<std::int64_t>(by_end.size()) - keep.most_ended : 0;
  const std::string oldest = keep.longest.count() > 0 ? base::to_rfc3339(now - keep.longest) : "";
  std::vector<std::string> ids;
  for (const auto& [end, id] : by_end)
    if (static_cast<std::int64_t>(ids.size()) < surplus || end < oldest) ids.push_back(id);
  return ids;
}

bool JobStore::wait_for_ends(std::int64_t* seen, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return closed_ || ends_ != *seen; });
  *seen = ends_;
  return !closed_;
}

}  // namespace meshloom::control
