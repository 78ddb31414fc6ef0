// SPDX-License-Identifier: Apache-2.0
// JobRecords: the jobs as the journal makes them, and what of them is durable and told.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/control/access/limits.h"
#include "daemon/control/stores/event_log.h"
#include "daemon/control/stores/job_entry.h"
#include "daemon/control/stores/job_table.h"
#include "daemon/control/stores/journaled_store.h"
#include "daemon/control/stores/ledger.h"
#include "daemon/control/stores/request_key.h"
#include "daemon/control/stores/subscribers.h"
#include "daemon/control/stores/uses.h"
#include "daemon/train/files/file_system.h"
#include "v1/job.pb.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

/// All methods may be called from any thread. Job ids are names without "jobs/".
///
/// A change takes effect at once and is told (by get, list, events) when it is durable. Methods
/// that change a state wait for that outside the mutex, but not for a disk that is full: then the
/// change is tried again, and `Job.pending_state` says what has taken effect. What must be durable
/// to have any effect (submit, edit, remove) throws instead. Steps and validations are not durable.
class JobRecords : public JournaledStore {
 public:
  struct Options {
    std::filesystem::path jobs_dir;
    /// Paths in configs begin here; one may lead to a checkpoint or an export below jobs_dir.
    std::filesystem::path data_dir = {};
    /// checkpoint_name_at() of a path; called without the mutex, on a thread that may be left
    /// behind. Empty: that of jobs_dir and data_dir.
    std::function<std::string(const std::string& path)> follow = {};
    /// So long a deletion waits for file systems that paths in configs lead into.
    std::chrono::milliseconds follow_timeout = std::chrono::seconds(10);
    /// Who uses checkpoints, exports and jobs; asked with the store's mutex held.
    std::shared_ptr<const Uses> uses = std::make_shared<const Uses>();
    /// Jobs of an earlier daemon are HELD until they are released, or a start without --no-resume.
    bool hold_unfinished = false;
    /// A job that ended with the daemon so often in a row is held, unless it did a step in between
    /// that no attempt had done, or got a newer checkpoint.
    std::int64_t most_stalled_attempts = 3;
    /// So many ended jobs are kept with more than a summary.
    std::size_t most_detailed = 1000;
    train::FileSystem* files = &train::posix_file_system();
    /// Gets what becomes of all jobs, before it is told; null: nobody.
    EventLog* events = nullptr;
    Limits limits = Limits();  ///< of jobs that have not ended
  };

  /// The job a repeated request made; nothing for a new request. Throws InvalidArgument
  /// (REQUEST_ID_REUSED), NotFound if the job was deleted.
  std::optional<v1::Job> find_request(const RequestKey& key) const;
  /// Events after `revision`; empty if there are none yet, and nobody waits for one:
  /// subscribe(). OutOfRange if they are no longer kept (start again with the present state) or
  /// do not exist yet. Unavailable if there are none and the store is closed.
  std::vector<v1::JobEvent> events_after(const std::string& id, std::int64_t revision) const;
  /// Calls `notify` after every event of the job that is told and when the store is closed, from
  /// the driver's or the ledger's thread. It must not block or wait for a change; it may read from
  /// the store. An event that came before this returns is not told: look with events_after first.
  Subscription subscribe(const std::string& id, std::weak_ptr<Wakeable> subscriber);

  // For the ledger.
  void snapshot(const Ledger::Visit& append) const override;
  void on_durable(Ledger::Ticket upto) override;
  void on_refused(Ledger::Ticket ticket) override;

 protected:
  explicit JobRecords(const Options& options) : options_(options) {}

  /// Holds the mutex; tells subscribers what happened once it is given back.
  class Change {
   public:
    explicit Change(JobRecords& store) : store_(store), lock_(store.mutex_) {}
    ~Change() {
      const Subscribers::Due due = store_.subscribers_.take_due();
      lock_.unlock();
      due.notify();
    }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    JobRecords& store_;
    std::unique_lock<std::mutex> lock_;
  };
  /// What the record of a change says of its request; nothing if that has no id.
  using Request = std::optional<v1::RequestRecord>;
  /// What a job that is submitted begins with, which its record promises beyond by a block.
  static constexpr std::int64_t kFirstRevision = 1;
  static constexpr std::int64_t kRevisionBlock = 10'000;

  void settle_after_restart() override;

  // With the mutex.
  /// Whether a submit, an edit or a removal of the job, or one of the request, is being written.
  bool is_undecided(const std::string& id, const RequestKey& key) const;
  /// Waits until nothing of that is being written; `lock` is the mutex. Whether it had to.
  bool wait_until_decided(std::unique_lock<std::mutex>& lock, const std::string& id,
                          const RequestKey& key) const;
  /// Whether a name is free: no job has it, none that is being submitted, and none whose folder is
  /// being removed.
  bool is_free(const std::string& id) const;
  /// The job that an answered request has made or changed.
  v1::Job repeat(const v1::RequestRecord& record) const;
  /// A job that has not ended, or is being submitted, and whose config `uses` says so of.
  std::optional<std::string> find_user(const ConfigTest& uses) const;
  /// Applies what has passed all checks to the job, appends the record of its state with `request`,
  /// and adds the event that tells of it.
  Ledger::Ticket alter(JobEntry& target, const std::function<void()>& apply,
                       const Request& request = {});
  /// The job as it is, with the revisions that are reserved already.
  static v1::JournalRecord promised_record(const JobEntry& entry);
  /// The same, with new ones.
  static v1::JournalRecord state_record(JobEntry& entry);
  static v1::JournalRecord samples_record(const JobEntry& entry);
  /// What the job keeps of the note; its record, or none: it is not kept.
  static std::optional<v1::JournalRecord> keep_note(JobEntry& entry, const std::string& note);
  Ledger::Ticket save(JobEntry& entry, const Request& request = {});
  /// The record of a part of the job alone, with its state if the next revisions are not reserved
  /// yet.
  Ledger::Ticket save_part(JobEntry& entry, v1::JournalRecord record);
  void add_event(JobEntry& entry, v1::JobEvent event, Ledger::Ticket ticket);
  void add_job_event(JobEntry& entry, Ledger::Ticket ticket);

  const Options options_;
  mutable std::condition_variable changed_;
  Subscribers subscribers_;
  JobTable jobs_;
  std::set<std::string> removed_;  ///< gone, but for what may be left of the folder
  /// Checkpoints that were deleted, but for what may be left of their files: their stamps by whole
  /// name.
  std::map<std::string, std::string> gone_checkpoints_;
  std::int64_t next_job_ = 1;
  std::int64_t ends_ = 0;
  bool closed_ = false;

 private:
  void apply(const v1::JournalRecord& record) override;
  void apply_job(const v1::JournalRecord& record);
  void apply_edit(const v1::StoredJobEdit& record);
  void settle_entry(JobEntry& entry);
  /// The lines of what is told once this much is durable, in order. With the mutex.
  std::string event_lines_up_to(Ledger::Ticket upto) const;
  /// A submit, an edit or a removal that was written.
  void take_effect(v1::JournalRecord record) override;
  void take_submitted(v1::JournalRecord record);
  void take_edit(const v1::StoredJobEdit& record);
  void erase(const std::string& id);

  std::set<JobEntry*> behind_;  ///< with events that are not told
};

}  // namespace meshloom::control
