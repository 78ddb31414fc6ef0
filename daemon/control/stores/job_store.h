// SPDX-License-Identifier: Apache-2.0
// JobStore: every job the daemon knows, for clients.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/access/ownership.h"
#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/host/hold.h"
#include "daemon/control/stores/job_progress.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_key.h"
#include "kernels/base/error.h"
#include "v1/job.pb.h"

namespace meshloom::control {

/// A job cannot be removed, since `used_by` needs a checkpoint of it; `text` says what for.
class JobInUse : public FailedPrecondition {
 public:
  JobInUse(const std::string& text, const std::string& job, const std::string& used_by)
      : FailedPrecondition(text, "JOB_IN_USE", {{"job", job}, {"used_by", used_by}}) {}
};

/// The jobs for clients, whose changes of them go by one way: change(). All methods may be called
/// from any thread. Job ids are names without "jobs/". No file system is asked with the mutex held.
class JobStore : public JobProgress {
 public:
  /// Used once its ledger was started: jobs that ran become RECOVERING then, those that were being
  /// cancelled CANCELLED; deletions that were not finished are.
  explicit JobStore(const Options& options);

  // For clients.
  /// Queues a job whose config was resolved. A repeat gets the first job. Throws AlreadyExists,
  /// ResourceExhausted.
  v1::Job submit(const v1::JobSpec& spec, const v1::RunConfig& resolved, const RequestKey& key);
  /// Throws what submit() would throw now for its name or a full queue; stores nothing.
  void check_submission(const v1::JobSpec& spec, const Identity& by = Identity::admin()) const;
  v1::Job get(const std::string& id) const;
  /// Its state alone.
  v1::JobState state(const std::string& id) const;
  /// The job that the driver has.
  std::optional<v1::Job> active_job() const;
  /// Up to `size` jobs, and no more than a page has room for, after position (0 at first), oldest
  /// first, without spec.run, resolved, edits, notes, sample and plan; the position to go on from,
  /// 0 at the end.
  using Labels = google::protobuf::Map<std::string, std::string>;
  /// Those that have all of `labels` and are shown; null: all are.
  std::pair<std::vector<v1::Job>, std::int64_t> list(std::int64_t position, int size,
                                                     const Labels& labels = {},
                                                     const IsShown& is_shown = nullptr) const;
  /// Nothing if there is no such job.
  std::optional<Ownership> ownership(const std::string& id) const;
  /// Whether a request was answered, of any store of the ledger. Throws InvalidArgument
  /// (REQUEST_ID_REUSED).
  bool is_answered(const RequestKey& key) const { return ledger().find_request(key).has_value(); }
  /// Jobs that have not ended, by owner.
  std::map<std::string, std::int64_t> count_by_owner() const;
  /// Of all jobs, by id.
  std::map<std::string, std::string> owners() const;
  /// Lets `with` look at it, or no more.
  v1::Job share(const std::string& id, const std::string& with, bool take_back,
                const RequestKey& key);
  /// Makes it another owner's.
  v1::Job give(const std::string& id, const std::string& owner, const RequestKey& key);
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
  /// A job that has had the ranks for longer than limits.max_running_seconds, while another owner's
  /// waits, is to be saved and goes behind all that wait. Called every second or so.
  void give_turn();
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
  Hold pin_checkpoint(const CheckpointName& name, const std::string& user) const;
  /// The whole name of a job that has not ended and whose config passes, if there is one.
  std::optional<std::string> user_by_config(const ConfigTest& test) const;

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

 private:
  void settle_after_restart() override;

  /// The one way in which a client changes a job. Waits until nothing about the job is undecided,
  /// and answers a repeat; else calls `make` with the job and the record of the request. That
  /// checks, throws what refuses the change, and returns the ticket of what it has appended, by
  /// alter() or propose(), or of what says so already. The job, once that is durable.
  using Make = std::function<Ledger::Ticket(JobEntry& target, const Request& request)>;
  v1::Job change(const std::string& id, const RequestKey& key, const Make& make);
  /// The job, if it is the owner's that asks, or an admin does. Throws NotFound.
  JobEntry& own(const std::string& id, const RequestKey& key) const;
  Ledger::Ticket put_at(JobEntry& target, std::vector<JobEntry*> queue, std::size_t at,
                        const Request& request);
  /// Gives the places that jobs have to the same jobs in another order: nobody else's moves.
  Ledger::Ticket take_places_of(const std::vector<JobEntry*>& before,
                                const std::vector<JobEntry*>& after, const JobEntry& target,
                                const Request& request);
  /// Returns the last place in the queue, also of a job whose submission is being written.
  std::int64_t last_place() const;
  /// `is_there`: a folder of this name is there, whatever the store knows of it.
  void check_name_is_free(const std::string& id, bool is_there) const;
  bool has_folder(const std::string& id) const;  ///< without the mutex
  void check_room(const Identity& by) const;
  Limits::Taken jobs_of(const std::string& owner) const;  ///< that have not ended

  /// Where paths in configs lead, as checkpoint_name_at() has it.
  using Followed = std::map<std::string, std::string>;
  /// The paths in configs of jobs that have not ended, and of other users, that are not in
  /// `known`. With the mutex.
  std::vector<std::string> paths_beside(const Followed& known) const;
  Followed follow(const std::vector<std::string>& paths) const;
  /// Something that a removal takes away. All with the mutex.
  class Removal {
   public:
    virtual ~Removal() = default;
    /// There is nothing to decide any more.
    virtual bool is_answered() const = 0;
    /// Throws what refuses it.
    virtual void check(const Followed& followed) const = 0;
    virtual Ledger::Ticket append_record() = 0;
  };
  class JobRemoval;
  class CheckpointRemoval;
  /// Decides about it once nothing about the job or the request is undecided and all paths in
  /// configs are followed. Those are followed without the mutex, so that a file system that does
  /// not answer holds up nobody else. Returns once the record is durable.
  void decide(const std::string& id, const RequestKey& key, Removal& removal);
  void check_removable(const std::string& id, const Followed& followed) const;
  void check_forgettable(const JobEntry& target, const GoneCheckpoint& gone,
                         const Followed& followed) const;
  void remove_folder(const std::string& id);
  void remove_gone(const std::string& checkpoint);

  std::mutex removal_mutex_;    ///< held while files are removed; taken before the other
  mutable BoundedCalls calls_;  ///< into file systems that paths in configs lead into
};

}  // namespace meshloom::control
