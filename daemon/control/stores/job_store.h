// SPDX-License-Identifier: Apache-2.0
// JobStore: every job the daemon knows, durable through the ledger, watchable by clients.
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

#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/stores/checkpoint_pins.h"
#include "daemon/control/stores/job_entry.h"
#include "daemon/control/stores/journaled_store.h"
#include "daemon/control/stores/ledger.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_key.h"
#include "daemon/control/stores/subscribers.h"
#include "daemon/train/checkpoint/file_system.h"
#include "kernels/base/error.h"
#include "v1/job.pb.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

/// A job cannot be removed, since `used_by` needs a checkpoint of it; `text` says what for.
class JobInUse : public FailedPrecondition {
 public:
  JobInUse(const std::string& text, const std::string& job, const std::string& used_by)
      : FailedPrecondition(text, "JOB_IN_USE", {{"job", job}, {"used_by", used_by}}) {}
};

/// All methods may be called from any thread. Job ids are names without "jobs/".
///
/// A change takes effect at once and is told (by get, list, events) when it is durable. Methods
/// that change a state wait for that outside the mutex, but not for a disk that is full: then the
/// change is tried again, and `Job.pending_state` says what has taken effect. What must be durable
/// to have any effect (submit, edit, remove) throws instead. Steps and validations are not durable.
///
/// No file system is asked with the mutex held.
class JobStore : public JournaledStore {
 public:
  /// What else than a job, by its whole name, has a config that a test says yes to. Called with the
  /// store's mutex held, so neither it nor the tests may ask a file system.
  using FindUser = std::function<std::optional<std::string>(const ConfigTest& uses)>;

  struct Options {
    std::filesystem::path jobs_dir;
    /// Of the paths in configs: one may lead to a checkpoint or an export below jobs_dir.
    std::filesystem::path data_dir = {};
    /// checkpoint_name_at() of a path; called without the mutex, on a thread that may be left
    /// behind. Empty: that of jobs_dir and data_dir.
    std::function<std::string(const std::string& path)> follow = {};
    /// So long a deletion waits for file systems that paths in configs lead into.
    std::chrono::milliseconds follow_timeout = std::chrono::seconds(10);
    FindUser find_other_user = [](const ConfigTest&) { return std::nullopt; };
    /// Jobs of an earlier daemon are HELD until they are released, or a start without --no-resume.
    bool hold_unfinished = false;
    /// A job that ended with the daemon so often in a row is held, unless it did a step in between
    /// that no attempt had done, or got a newer checkpoint.
    std::int64_t most_stalled_attempts = 3;
    /// Of so many ended jobs more than a summary is kept.
    std::size_t most_detailed = 1000;
    train::FileSystem* files = &train::posix_file_system();
  };
  /// Used once its ledger was started: jobs that ran become RECOVERING then, those that were being
  /// cancelled CANCELLED; deletions that were not finished are.
  explicit JobStore(const Options& options);

  // For clients.
  /// The job a repeated request made; nothing for a new request. Throws InvalidArgument
  /// (REQUEST_ID_REUSED), NotFound if the job was deleted.
  std::optional<v1::Job> find_request(const RequestKey& key) const;
  /// Queues a job whose config was resolved. A repeat gets the first job. Throws AlreadyExists,
  /// ResourceExhausted.
  v1::Job submit(const v1::JobSpec& spec, const v1::RunConfig& resolved, const RequestKey& key);
  /// Throws what submit() would throw now for its name or a full queue; stores nothing.
  void check_submission(const v1::JobSpec& spec) const;
  v1::Job get(const std::string& id) const;
  /// Its state alone.
  v1::JobState state(const std::string& id) const;
  /// The job that the driver has.
  std::optional<v1::Job> active_job() const;
  /// Up to `size` jobs, and no more than a page has room for, after position (0 at first), oldest
  /// first, without spec.run, resolved, edits, notes, sample and plan; the position to go on from,
  /// 0 at the end.
  using Labels = google::protobuf::Map<std::string, std::string>;
  /// Those that have all of `labels`.
  std::pair<std::vector<v1::Job>, std::int64_t> list(std::int64_t position, int size,
                                                     const Labels& labels = {}) const;
  v1::Job cancel(const std::string& id, const RequestKey& key);
  /// What runs is to be saved and let go, what waits is PAUSED at once. Throws FailedPrecondition
  /// (JOB_FINISHED, JOB_CANCELLING).
  v1::Job pause(const std::string& id, v1::PauseCode code, const RequestKey& key);
  /// To the head of the queue, before runs that wait as well. Throws FailedPrecondition
  /// (JOB_NOT_PAUSED).
  v1::Job resume(const std::string& id, const RequestKey& key);
  /// Where in the queue; `other` is a job that waits. Throws FailedPrecondition (JOB_NOT_QUEUED).
  enum class Place { kFirst, kBefore, kAfter };
  v1::Job move(const std::string& id, Place place, const std::string& other, const RequestKey& key);
  /// Throws InvalidArgument for labels that are not valid or too many.
  v1::Job label(const std::string& id, const Labels& set, const std::vector<std::string>& remove,
                const RequestKey& key);
  /// Changes what is ahead: settings of the run and limits, as `after` has them. `before` is what
  /// `after` was made from. Has taken effect, and is durable, when it returns. Throws
  /// FailedPrecondition (JOB_FINISHED, STEP_PASSED), Aborted (EDITED_MEANWHILE).
  v1::Job edit(const std::string& id, const v1::JobSpec& before, const v1::JobSpec& after,
               const RequestKey& key);
  /// An edit of a job by its number, which grows, and the step behind which it holds. In order.
  struct EditMark {
    std::int64_t number = 0;
    std::int64_t after_step = 0;
  };
  std::vector<EditMark> edit_marks(const std::string& id) const;
  /// Jobs that a drain has paused wait again, those that were first first. Their ids.
  std::vector<std::string> end_drain();
  /// A job that is HELD, for whatever reason, is taken again by the driver. Throws
  /// FailedPrecondition (JOB_NOT_HELD).
  v1::Job release(const std::string& id, const RequestKey& key);
  /// Removes a job that has ended, and its folder. Throws JobInUse, and DeadlineExceeded
  /// (FILE_SYSTEM_STUCK) if it cannot be told where a path in a config of a job that has not ended
  /// leads. The name is free again when it returns; if the folder could not be removed it throws
  /// IoError, and a repeat or the next start goes on.
  void remove(const std::string& id, const RequestKey& key);
  /// A checkpoint or an export in the job's folder that a client wants to be removed.
  struct GoneCheckpoint {
    std::string folder;
    bool newest = false;           ///< of the job's checkpoints
    std::int64_t newest_left = 0;  ///< step of the newest beside it; 0: none
    bool force = false;            ///< though it is the newest
  };
  /// Forgets it durably, then removes its files; if they cannot be removed it throws IoError, and a
  /// repeat or the next start goes on. Throws FailedPrecondition (CHECKPOINT_IN_USE) while a job
  /// that has not ended begins with it or goes on from it, or somebody has pinned it,
  /// CHECKPOINT_IS_LAST; DeadlineExceeded as remove(). A repeat removes only what is left of the
  /// files that were meant.
  void delete_checkpoint(const std::string& id, const GoneCheckpoint& gone, const RequestKey& key);
  /// Nobody deletes the checkpoint, the export or their job until the result is let go; `user` is
  /// told to who tries. Look whether it is there afterwards. Throws NotFound for a job that is not
  /// there and for one that was deleted.
  std::shared_ptr<const void> pin_checkpoint(const CheckpointName& name,
                                             const std::string& user) const;
  /// A job that has not ended and whose config names the model, if there is one.
  std::optional<std::string> user_of_model(const std::string& model) const;
  /// The same of a plan, by its whole name.
  std::optional<std::string> user_of_plan(const std::string& plan) const;
  /// Events after `revision`; empty if there are none yet, and nobody waits for one:
  /// subscribe(). OutOfRange if they are no longer kept (start again with the present state) or
  /// do not exist yet. Unavailable if there are none and the store is closed.
  std::vector<v1::JobEvent> events_after(const std::string& id, std::int64_t revision) const;
  /// Calls `notify` after every event of the job that is told and when the store is closed, from
  /// the driver's or the ledger's thread. It must not block or wait for a change; it may read from
  /// the store. An event that came before this returns is not told: look with events_after first.
  Subscription subscribe(const std::string& id, std::function<void()> notify);

  // For the driver.
  /// The next job to run; waits for one. Those that took the daemon down come last. Nothing once
  /// closed.
  std::optional<std::string> wait_for_job();
  /// The same without waiting: nothing if there is none.
  std::optional<std::string> next_job() const;
  /// Ids of the jobs that wait for the ranks, in the order in which they are taken.
  std::vector<std::string> waiting() const;
  /// Whether a job that waits was resumed: it comes before all that wait for the ranks.
  bool comes_first(const std::string& id) const;
  /// A new attempt: PREPARING with the next epoch, which the journal promises to give out once.
  /// Waits for that promise if the disk is full; Unavailable once closed.
  v1::Job begin_attempt(const std::string& id);
  /// HELD until the daemon is started again; nothing if the job was cancelled meanwhile.
  void hold(const std::string& id, v1::HoldCode code, const std::string& reason);
  /// Applies a change and checks the move of state.
  void update(const std::string& id, const std::function<void(v1::Job*)>& change);
  /// Told to watchers and readers, not kept.
  void publish_tokenizing(const std::string& id, const v1::TokenizeProgress& progress);
  void publish_step(const std::string& id, const v1::StepMetrics& step);
  void publish_validation(const std::string& id, const v1::ValidationMetrics& validation);
  /// Those of a step, one for each prompt.
  void publish_samples(const std::string& id, const std::vector<v1::DrawnSample>& samples);
  /// A checkpoint of this step is whole. Told from here on, also after a restart.
  void checkpoint_saved(const std::string& id, std::int64_t step, double ran_seconds);
  void add_note(const std::string& id, const std::string& note);
  bool cancel_requested(const std::string& id) const;
  bool pause_requested(const std::string& id) const;
  /// The job could not be saved and goes on.
  void pause_failed(const std::string& id, const std::string& why);
  /// What decides about a step: settings_for() of this config, and limits.
  struct StepOrder {
    SharedJobConfig config;
    std::int64_t step_limit = 0;
    std::int64_t time_limit_seconds = 0;
  };
  /// This step is about to begin: no edit holds for it from here on. Waits for one that is being
  /// written.
  StepOrder begin_step(const std::string& id, std::int64_t step);

  /// No more jobs are started; watchers are let go, and those who wait for a file system.
  void close();
  /// A file system has not answered: threads that it holds may still use this.
  bool hanging() const { return calls_.running() > 0; }

  // For retention.
  struct Keep {
    std::int64_t most_ended = 0;      ///< 0: all
    std::chrono::seconds longest{0};  ///< since the end; 0: for ever
  };
  /// Ended jobs that are to be removed, oldest end first. `now` as of timestamp.h.
  std::vector<std::string> expired(const Keep& keep,
                                   std::chrono::system_clock::time_point now) const;
  /// Waits until more jobs have ended than `*seen` says, which is brought up to date, or `timeout`
  /// has passed; false once closed.
  bool wait_for_ends(std::int64_t* seen, std::chrono::milliseconds timeout) const;

  // For the ledger.
  void snapshot(const Ledger::Visit& append) const override;
  void on_durable(Ledger::Ticket upto) override;
  void on_refused(Ledger::Ticket ticket) override;

 private:
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
    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    JobStore& store_;
    std::unique_lock<std::mutex> lock_;
  };
  /// Between the places of two jobs that were submitted one after the other. Places are odd: 0 is
  /// that of a journal which knows none.
  static constexpr std::int64_t kQueueGap = std::int64_t{1} << 20;

  // Replay and restart.
  void apply(const v1::JournalRecord& record) override;
  void apply_edit(const v1::StoredJobEdit& record);
  void apply_note(const v1::StoredJobNote& record);
  void apply_samples(const v1::StoredJobSamples& record);
  static void show_limits(JobEntry& target);
  void settle_after_restart() override;
  void settle_entry(JobEntry& entry);

  /// A submit, an edit or a removal that was written.
  void take_effect(v1::JournalRecord record) override;
  void take_submitted(v1::JournalRecord record);
  void take_edit(const v1::StoredJobEdit& record);
  void check_editable(const JobEntry& target, const v1::JobSpec& before) const;

  using Request = std::optional<v1::RequestRecord>;
  /// The one way in which a client changes a job. Waits until nothing about the job is undecided,
  /// and answers a repeat; else calls `make` with the job and the record of the request. That
  /// checks, throws what refuses the change, and returns the ticket of what it has appended, by
  /// alter() or propose(), or of what says so already. The job, once that is durable.
  using Make = std::function<Ledger::Ticket(JobEntry& target, const Request& request)>;
  v1::Job change(const std::string& id, const RequestKey& key, const Make& make);
  /// Applies what has passed all checks to the job, appends the record of its state with `request`,
  /// and adds the event that tells of it. With the mutex.
  Ledger::Ticket alter(JobEntry& target, const std::function<void()>& apply,
                       const Request& request = {});
  /// A job that has not ended and whose config `uses` says so of. With the mutex.
  std::optional<std::string> find_user(const ConfigTest& uses) const;
  /// Where paths in configs lead, as checkpoint_name_at() has it.
  using Followed = std::map<std::string, std::string>;
  /// The paths in configs of jobs that have not ended, and of other users, that are not in
  /// `known`. With the mutex.
  std::vector<std::string> paths_beside(const Followed& known) const;
  Followed follow(const std::vector<std::string>& paths) const;
  /// Something that a removal takes away. All with the mutex.
  struct Removal {
    std::function<bool()> is_answered;           ///< there is nothing to decide any more
    std::function<void(const Followed&)> check;  ///< throws what refuses it
    std::function<Ledger::Ticket()> append_record;
  };
  /// Decides about it once nothing about the job or the request is undecided and all paths in
  /// configs are followed. Those are followed without the mutex, so that a file system that does
  /// not answer holds up nobody else. Returns once the record is durable.
  void decide(const std::string& id, const RequestKey& key, const Removal& removal);
  /// Tests whether a config reads a checkpoint or an export whose whole name passes, as far as its
  /// paths are in `followed`.
  static ConfigTest reads(const Followed& followed,
                          std::function<bool(const std::string& name)> is_meant);
  const JobEntry* first_waiting() const;
  /// Jobs that wait for the ranks, in the order in which they are taken.
  std::vector<JobEntry*> queue() const;
  /// Of the job that comes last; 1 if there is none.
  std::int64_t last_place() const;
  void queue_first(JobEntry& target);
  Ledger::Ticket put_at(JobEntry& target, std::vector<JobEntry*> queue, std::size_t at,
                        const Request& request);
  JobEntry& entry(const std::string& id) const;
  JobEntry& add_entry(std::unique_ptr<JobEntry> fresh);
  void erase_entry(const std::string& id);
  /// "; did you mean NAME?" where a job is called nearly so.
  std::string hint_of(const std::string& id) const;
  bool is_free(const std::string& id) const;
  /// `has_folder`: a folder of this name is there, whatever the store knows of it.
  void check_name_is_free(const std::string& id, bool has_folder) const;
  bool has_folder(const std::string& id) const;  ///< without the mutex
  void check_room() const;
  void check_removable(const std::string& id, const Followed& followed) const;
  void check_forgettable(const JobEntry& target, const GoneCheckpoint& gone,
                         const Followed& followed) const;
  void remove_folder(const std::string& id);
  void remove_gone(const std::string& checkpoint);
  void remove_leftovers();
  void set_unknown_aside() const;
  bool is_undecided(const std::string& id, const RequestKey& key) const;
  v1::Job repeat(const v1::RequestRecord& record) const;
  /// The job as it is, with the revisions that are reserved already.
  static v1::JournalRecord promised_record(const JobEntry& entry);
  /// The same, with new ones.
  v1::JournalRecord state_record(JobEntry& entry);
  Ledger::Ticket save(JobEntry& entry, const Request& request = {});
  /// The record of a part of the job alone, with its state if the next revisions are not reserved
  /// yet.
  Ledger::Ticket save_part(JobEntry& entry, v1::JournalRecord record);
  /// What the job keeps of the note; its record, or none: it is not kept.
  std::optional<v1::JournalRecord> keep_note(JobEntry& entry, const std::string& note);
  static v1::JournalRecord samples_record(const JobEntry& entry);
  void add_event(JobEntry& entry, v1::JobEvent event, Ledger::Ticket ticket);
  void add_job_event(JobEntry& entry, Ledger::Ticket ticket);
  void ended(JobEntry& entry);
  void drop_details();

  mutable std::condition_variable changed_;
  std::mutex removal_mutex_;  ///< held while files are removed; taken before the other
  Subscribers subscribers_;
  const Options options_;
  std::map<std::int64_t, std::unique_ptr<JobEntry>> entries_;  ///< by order of submission
  std::map<std::string, JobEntry*> by_id_;
  std::map<std::int64_t, JobEntry*> unfinished_;
  std::set<std::int64_t> detailed_;      ///< ended ones that are more than a summary
  std::vector<std::string> just_ended_;  ///< whose events are kept until the next attempt
  std::set<JobEntry*> behind_;           ///< with events that are not told
  std::set<std::string> removed_;        ///< gone, but for what may be left of the folder
  /// Checkpoints that were deleted, but for what may be left of their files: their stamps by whole
  /// name.
  std::map<std::string, std::string> gone_checkpoints_;
  CheckpointPins pins_;
  mutable BoundedCalls calls_;  ///< into file systems that paths in configs lead into
  std::int64_t next_job_ = 1;
  std::int64_t next_number_ = 1;
  std::int64_t ends_ = 0;
  bool closed_ = false;
};

}  // namespace meshloom::control
