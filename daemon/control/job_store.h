// SPDX-License-Identifier: Apache-2.0
// JobStore: every job the daemon knows, durable through the journal, watchable by clients.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/journal.h"
#include "daemon/control/request_key.h"
#include "daemon/control/subscribers.h"
#include "v1/job.pb.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

/// All methods may be called from any thread. Changes of state are in the journal before a method
/// returns; steps and notes in between are not. Job ids are names without "jobs/".
class JobStore {
 public:
  struct Options {
    std::filesystem::path journal;
    std::filesystem::path jobs_dir;
    /// Jobs of an earlier daemon wait until a start without --no-resume.
    bool hold_unfinished = false;
  };
  /// Replays the journal: jobs that ran become RECOVERING, those that were being cancelled
  /// CANCELLED.
  explicit JobStore(const Options& options);

  // For clients.
  /// The job a repeated request made; nothing for a new request. Throws InvalidArgument
  /// (REQUEST_ID_REUSED).
  std::optional<v1::Job> find_request(const RequestKey& key) const;
  /// Queues a job whose config was resolved. A repeat gets the first job. Throws AlreadyExists,
  /// ResourceExhausted.
  v1::Job submit(const v1::JobSpec& spec, const v1::RunConfig& resolved, const RequestKey& key);
  v1::Job get(const std::string& id) const;
  /// Up to `size` jobs after position (0 at first), oldest first; the position to go on from, 0 at
  /// the end.
  std::pair<std::vector<v1::Job>, std::int64_t> list(std::int64_t position, int size) const;
  v1::Job cancel(const std::string& id, const RequestKey& key);
  /// Events after `revision`, waiting for one up to `timeout`; empty after it. OutOfRange where
  /// they are no longer kept (start again with the present state) or do not exist yet. Unavailable
  /// once closed.
  std::vector<v1::JobEvent> wait_events(const std::string& id, std::int64_t revision,
                                        std::chrono::milliseconds timeout);
  /// The same without waiting; empty where there are none yet.
  std::vector<v1::JobEvent> events_after(const std::string& id, std::int64_t revision) const;
  /// Calls `notify` after every event of the job and when the store is closed, from the thread that
  /// made the change. It must not block; it may call the store. An event that came before this
  /// returns is not told: look with events_after first.
  Subscription subscribe(const std::string& id, std::function<void()> notify);

  // For the driver.
  /// The next job to run; waits for one. Nothing once closed.
  std::optional<std::string> wait_for_job();
  /// A new attempt: PREPARING with the next epoch. Returns the job as it is then. A full disk is
  /// logged, as by update().
  v1::Job begin_attempt(const std::string& id);
  /// HELD until the daemon is started again; nothing where the job was cancelled meanwhile.
  void hold(const std::string& id, const std::string& reason);
  /// Applies a change, checks the move of state, and makes it durable. A full disk is logged, not
  /// thrown: the job goes on and the next change is tried again.
  void update(const std::string& id, const std::function<void(v1::Job*)>& change);
  void publish_step(const std::string& id, const v1::StepMetrics& step);
  void publish_validation(const std::string& id, const v1::ValidationMetrics& validation);
  void add_note(const std::string& id, const std::string& note);
  bool cancel_requested(const std::string& id) const;
  std::int64_t epoch() const;

  /// No more jobs are started; watchers are let go.
  void close();

 private:
  struct Entry {
    v1::Job job;
    std::int64_t number = 0;  ///< order of submission
    /// The journal promises that none up to here is used again.
    std::int64_t reserved_revision = 0;
    bool active = false;  ///< the driver has it
    bool held = false;
    std::deque<v1::JobEvent> history;
  };

  /// Holds the mutex; tells subscribers what happened once it is given back.
  class Change {
   public:
    explicit Change(JobStore& store) : store_(store), lock_(store.mutex_) {}
    ~Change() {
      const Subscribers::Due due = store_.subscribers_.take_due();
      lock_.unlock();
      due.notify();
    }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    JobStore& store_;
    std::unique_lock<std::mutex> lock_;
  };

  void apply(const v1::JournalRecord& record);
  void settle_after_restart(bool hold);
  void compact();
  v1::JournalRecord snapshot(const Entry& entry) const;
  Entry& entry(const std::string& id) const;
  Entry& add_entry(v1::Job job);
  std::string make_up_id();
  void drop_old_entries();
  void add_event(Entry& entry, v1::JobEvent event);
  void add_job_event(Entry& entry);
  void save(Entry& entry, v1::JournalRecord record = {});
  /// Logs what save throws: the next change is tried again.
  void try_save(Entry& entry, v1::JournalRecord record = {});
  void remember_request(const v1::JournalRecord& record);
  std::optional<v1::Job> find_request_locked(const RequestKey& key) const;
  std::vector<v1::JobEvent> events_after_locked(const std::string& id, std::int64_t revision) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Subscribers subscribers_;
  std::filesystem::path jobs_dir_;
  std::unique_ptr<Journal> journal_;
  std::vector<std::unique_ptr<Entry>> entries_;  ///< in order of submission
  std::map<std::string, Entry*> by_id_;
  std::map<std::string, v1::RequestRecord> requests_;
  std::deque<std::string> request_order_;
  std::int64_t epoch_ = 0;
  std::int64_t next_job_ = 1;
  std::int64_t next_number_ = 1;
  bool closed_ = false;
};

}  // namespace meshloom::control
