// SPDX-License-Identifier: Apache-2.0
// RunSession: one run that a client drives: its verbs in order, its lease, its states.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/control/host/hold.h"
#include "daemon/control/host/memory_units.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/ranks/ranks_turn.h"
#include "daemon/control/runs/operations.h"
#include "daemon/control/runs/run_sample.h"
#include "daemon/control/runs/run_snapshot.h"
#include "daemon/control/runs/verb_launch.h"
#include "daemon/control/runs/verb_sequence.h"
#include "daemon/control/runs/waiting_memory.h"
#include "daemon/control/stores/notes.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/transient_uploads.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/control/stores/uses.h"
#include "kernels/base/error.h"

namespace meshloom::control {

/// What all runs of a daemon share; outlives them.
struct RunWorld {
  Executor& executor;
  RanksTurn& turn;
  RunStore& store;
  Operations& operations;
  SampleScheduler& scheduler;
  const StateDir& state;
  std::filesystem::path data_dir;
  /// As Admission::model_folder.
  std::function<std::filesystem::path(const v1::RunConfig& resolved)> model_folder;
  TransientUploads& uploads;
  const Uses& uses;  ///< of names of weights that are being saved or deleted
  /// As those of Admission.
  std::function<MemoryUnits(const v1::RunConfig& resolved)> hold_snapshot;
  std::function<MemoryUnits(std::int64_t bytes)> hold_upload;
  std::function<train::TokenizedText(const v1::RunConfig& resolved, v1::DataReference* reference,
                                     const train::TextProgress& progress)>
      tokenize;
  /// The memory of keys and values of sequences. Throws ResourceExhausted (MEMORY_ESTIMATE).
  std::function<MemoryUnits(const v1::RunConfig& resolved,
                            const std::vector<train::SampleStart>& starts)>
      hold_cache;
  /// Seconds of all daemons on the state dir together: what the age of a state is counted by.
  std::function<std::int64_t()> uptime;
  /// Of uploads that verbs in flight have taken, and one more verb if none has.
  std::int64_t most_upload_bytes = 0;
  WaitingMemory waiting;
  /// RanksQueue::wait_of; may be empty. Asked without a mutex of a run.
  std::function<v1::RanksWait(const std::string& name)> wait_of = {};
  std::atomic<bool> stopping{false};
  /// A run has ended since whoever looks after memory has looked: what it held is free.
  std::atomic<bool> freed{false};
};

/// One thread calls drive(); all other methods may be called from any thread. Shared by those who
/// use it.
class RunSession : public std::enable_shared_from_this<RunSession> {
 public:
  using Clock = std::chrono::steady_clock;

  /// A run that is durable already. After a restart of the daemon it is as restarted() made it.
  RunSession(RunWorld& world, v1::RunRecord record);

  /// What a record becomes when the daemon that wrote it has ended: the next epoch of a run that
  /// has not ended, from its last saved state.
  /// `newest`: of its saved states, that can be read.
  static v1::RunRecord restarted(v1::RunRecord record, const std::optional<v1::SavedState>& newest);

  // --- For clients.
  const std::string& id() const { return id_; }
  /// The name of the client that made it.
  const std::string& client() const { return client_; }
  /// As GetRun tells it.
  v1::Run view() const;
  /// As ListRuns does.
  v1::Run summary() const;
  v1::RunConfig resolved() const;
  /// Throws PermissionDenied-like FailedPrecondition (TOKEN_INVALID) unless it is the run's token.
  void check_token(const std::string& token) const;
  /// Whether a call that needs no token is one of the client that holds the run, which renews its
  /// lease: it has the token. Without one it is another's, with a wrong one it throws as
  /// check_token.
  bool is_of_holder(const std::string& token);
  /// As hold_lease, for a call of the client that holds the run (see is_of_holder); it
  /// holds nothing for another's.
  Hold hold_lease_of(const std::string& token) {
    return is_of_holder(token) ? hold_lease() : Hold();
  }
  /// A repeat of the creation: the token before it ends.
  void replace_token(const std::string& digest);
  /// Whoever lets a call through that has the token does so.
  void renew_lease();
  /// Throws FailedPrecondition (LEASE_ENDED, RUN_CLOSED) for a run that has ended or is about to,
  /// and Unavailable (LEASE_ENDING) until the state is saved that the former names.
  void check_not_ended() const;
  /// Throws as check_not_ended.
  v1::HeartbeatResponse heartbeat() const;
  v1::Operation submit(Verb::Request request);
  /// The order's starts fit what the model can continue. While the run does not have the ranks the
  /// operation waits, and fails with what is thrown later: FailedPrecondition (WEIGHTS_STALE,
  /// SNAPSHOT_STALE), InvalidArgument for what Forward cannot take, ResourceExhausted.
  v1::Operation sample(std::int64_t epoch, SampleOrder order);
  /// What the ranks have told of the model; nothing before they have made it. Throws as
  /// check_not_ended.
  std::optional<train::PromptLimits> prompt_limits() const;
  /// Cancels what has not begun and lets the ranks go when what has begun is done. Saved first as
  /// "lease-STEP" if a cause is given.
  void close(const std::optional<Error>& cause = std::nullopt);
  /// Ends a run that nobody drives, or not to its end.
  void give_up(const Error& cause);
  /// Once what has begun is done, saves the run as where its lease ends, and closes it (DRAINED).
  /// Where it cannot be saved it goes on, with a note. Closes one that has no weights yet at once.
  void drain();
  /// Removes a saved state. Throws NotFound.
  void delete_state(const std::string& name);
  bool has_states() const { return world_.store.count_states(id_) > 0; }
  /// As RunStore::list_states.
  std::pair<std::vector<v1::SavedState>, std::int64_t> list_states(std::int64_t position,
                                                                   int size) const;
  /// Lets saved weights go; samples that draw from them go on. Throws NotFound (WEIGHTS_NOT_FOUND),
  /// as the next does.
  void delete_weights(const std::string& name);
  v1::SavedWeights find_weights(const std::string& name) const;
  /// The lease does not run while the result is held.
  Hold hold_lease();
  /// Why an operation that is not kept is gone: throws Aborted (RUN_RECOVERED) if it is of an
  /// earlier epoch.
  void explain_lost(std::int64_t epoch) const;
  /// In words, for an operation that waits.
  std::string waits_for(const v1::Operation& operation) const;

  /// What those who wait behind it are told.
  struct Holding {
    std::string client;
    std::int64_t lease_left_ms = 0;
    bool idle = false;  ///< READY, and nothing but its client keeps its lease
  };
  Holding holding() const;

  // --- For the manager.
  /// Its record is about to be removed: whoever still has the session brings it back no more.
  void forget();
  bool ended() const;   ///< CLOSED or FAILED
  bool queued() const;  ///< waits for the ranks
  /// Ends gaps and leases whose time has come.
  void check_times();
  /// Removes the states whose time to live is over, but for those that `needed` names and the one
  /// that this run would begin anew from.
  void collect_states(const std::set<std::string>& needed);
  /// The state of another run that this one still needs to begin with; empty: none.
  std::string needed_state() const;
  /// Has the ranks: makes the run on them and carries out verbs until it is closed or the daemon
  /// stops.
  void drive();
  /// Something that drive() waits for may have changed.
  void wake();

 private:
  struct End {
    bool save = false;  ///< first
  };
  static constexpr const char* kLeaseEnded = "LEASE_ENDED";
  static constexpr const char* kNotSaved = "its last state was not saved: ";
  using Lock = std::unique_lock<std::mutex>;

  std::string operation_name(std::int64_t epoch, const std::string& key) const;
  /// What was saved before the daemon was started is told of still.
  void restore_saves();
  v1::Run told(const RunStore::StateRoom& states) const;
  v1::RanksWait ranks_wait() const;  ///< without the mutex
  void set_expiry(v1::SavedState& state) const;
  void add_note(const std::string& note) { keep_newest_note(note, run_.mutable_notes()); }
  bool has_ended() const { return control::has_ended(run_); }
  std::int64_t lease_left_ms() const;
  void check_open(std::int64_t epoch) const;
  /// Throws ResourceExhausted (STATES_FULL) for a state whose record there is no room for.
  void check_room(const v1::SaveStateRequest& state) const;
  void check_not_ended_locked() const;
  /// The operation of an earlier epoch that has saved what `request` asks for; null: there is none.
  std::optional<v1::Operation> finished_save(const Verb::Request& request) const;
  [[noreturn]] void refuse_used(std::int64_t seq, const std::string& digest) const;
  Error recovered_error(const std::string& cause) const;
  Error closed_error() const;  ///< of what had not ended
  static Error drained_error() { return FailedPrecondition("the daemon is drained", "DRAINED"); }
  /// That can be read, as far as is known.
  std::optional<v1::SavedState> newest_state() const {
    return world_.store.newest_readable_state(id_);
  }
  Error no_state_left() const;
  void fail_waiting(const Error& error);
  void fail_verbs(const std::vector<VerbSequence::VerbPtr>& verbs, const Error& error);
  void set_state(v1::RunState state);
  void end_as(v1::RunState state);
  void persist();  ///< without the mutexes
  v1::SavedState keep_state(v1::SavedState saved);
  /// Of a state or of weights that nothing knows of any more. What cannot be removed is told of in
  /// the log, and goes at the next start.
  void remove_saved(const std::string& folder) const;
  VerbPlace place();
  /// Until it is let go the name of weights is taken.
  Hold claim(const std::string& name) const;
  Hold claim_weights(const std::string& name);
  using SnapshotPtr = std::shared_ptr<const RunSnapshot>;
  SnapshotMemory hold_snapshot();
  SnapshotPtr keep_snapshot(const std::string& name);
  /// For weights on disk that a sample draws from: one for all that draw at the same time.
  std::shared_ptr<const SnapshotMemory> hold_loaded(const std::string& name);
  v1::SavedWeights keep_weights(v1::SavedWeights saved, SnapshotPtr snapshot);
  v1::SavedWeights keep_weights_on_disk(v1::SavedWeights saved);
  const v1::SavedWeights* kept_weights(const std::string& name) const;  ///< null: there are none
  /// As find_weights, with the mutex.
  v1::SavedWeights weights_named(const std::string& name) const;
  void erase_weights(const std::function<bool(const v1::SavedWeights&)>& which);
  void drop_snapshots();  ///< samples that draw from them have them still
  /// Saved weights that a sample is to draw from. Throws FailedPrecondition (SNAPSHOT_STALE).
  v1::SavedWeights drawn_weights(const std::string& name) const;
  void check_sample(const SampleOrder& order) const;
  v1::Operation add_sample(std::int64_t epoch, const std::shared_ptr<SampleProgress>& progress);
  void begin_sample(std::int64_t epoch, const std::string& operation, SampleOrder order,
                    const std::shared_ptr<SampleProgress>& progress);
  /// For one more that waits. Throws ResourceExhausted (VERBS_FULL).
  MemoryUnits hold_waiting(const SampleOrder& order);
  /// Those that were taken before the ranks had the run. Without the mutex.
  void begin_waiting_samples();
  /// As SampleOrder::lost_with_run of an operation of `epoch`: one that finds the run lost waits
  /// for the next epoch, whose number and state its error names.
  bool take_lost_sample(std::int64_t epoch, const std::string& operation,
                        const std::exception_ptr& error);
  void fail_lost_samples(const Error& error);
  /// The memory that drawing takes; the order draws from the weights of these names as they are
  /// now.
  void hold_memory(SampleOrder& order);
  std::filesystem::path weights_folder(const std::string& weights) const;

  // The thread of drive(), and the one that collects answers.
  /// From its newest state that can be read, else as its spec says; false, with the cause, if it
  /// cannot be made.
  bool make_on_ranks();
  bool make_ready();  ///< and takes what has waited for that
  void create_on_ranks(const v1::SavedState* own);
  void skip_state(const std::string& name, const Error& damage);
  void mark_damaged(const std::string& name, const Error& damage);
  /// The next epoch, from the newest state; verbs that wait fail. With the mutex.
  void begin_epoch(const Error& cause);
  bool may_start() const;
  void start_next(Lock& lock);
  /// What the run holds is lost if the start of a verb fails where none can.
  void start_safely(Lock& lock);
  /// The gradients of verb `seq` will be missing, which a later step fails for.
  struct Missing {
    std::int64_t seq = 0;
    std::string cause;
  };
  VerbInFlight poison(const Missing& missing);
  /// The tokens of the text that a verb names, until the run is to end. Without the mutex.
  train::TokenizedText tokenize(v1::DataReference* reference);
  void collect();
  v1::ErrorDetails details_of(const VerbInFlight& verb, const std::exception_ptr& error);
  bool begin_anew(Lock& lock);
  /// Verbs in their order until the run is to end; false if it could not be made anew.
  bool carry_out();
  /// False, with a note, if it cannot be.
  bool save_last(const std::string& name, std::int64_t ttl_seconds);
  void save_and_close(Lock& lock);
  /// After the last verb; `made`: the ranks have it.
  void finish(bool made);

  RunWorld& world_;
  const std::string id_;
  const std::string client_;
  const RunClient ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  v1::RunRecord record_;
  v1::Run& run_;  ///< of record_
  VerbSequence sequence_;
  std::map<std::int64_t, std::string> digests_;  ///< of verbs of this epoch, by number
  std::deque<VerbInFlight> in_flight_;
  bool collecting_ = false;
  /// The first since the last optimizer step whose gradients are missing, as far as answers are
  /// collected, which is in the order of numbers.
  std::optional<Missing> missing_;
  /// The first that was lost in a gap; the ranks are not told yet.
  std::optional<Missing> gap_;
  std::optional<Error> lost_;  ///< what the run held on the ranks is lost
  std::optional<End> end_;     ///< it is to end
  bool draining_ = false;      ///< nothing is begun before it is saved
  bool driven_ = false;        ///< the ranks may know of it
  Clock::time_point renewed_;
  train::PromptLimits limits_;
  RunClient::BatchRules rules_;  ///< of the thread of drive()
  /// What a reference's section `data` becomes, and the tokens of its text.
  struct KnownText {
    std::string key;
    v1::DataConfig data;
    train::TokenizedText text;
  };
  std::deque<KnownText> texts_;  ///< of the thread of drive(), newest last
  std::int64_t next_sample_ = 1;
  struct WaitingSample {
    std::int64_t epoch = 0;
    std::string operation;
    SampleOrder order;
    std::shared_ptr<SampleProgress> progress;
    MemoryUnits memory;
  };
  std::vector<WaitingSample> waiting_samples_;  ///< for the ranks, oldest first
  /// Operations of samples that found what the run held lost; the next epoch ends them.
  std::vector<std::string> lost_samples_;
  /// Weights in memory, by their name; samples hold what they draw from as well.
  std::map<std::string, SnapshotPtr> snapshots_;
  std::int64_t next_snapshot_ = 1;
  std::map<std::string, std::weak_ptr<const SnapshotMemory>> loaded_memory_;  ///< of those on disk
  std::mutex loading_;  ///< while memory of weights on disk is asked for; taken before mutex_
  /// How many weights have memory or have asked for it. It grows with the mutex held; they may
  /// outlive the session.
  const std::shared_ptr<std::atomic<std::size_t>> held_weights_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  int lease_holds_ = 0;
  std::mutex persist_mutex_;  ///< taken before the other
  bool forgotten_ = false;    ///< by persist_mutex_
};

}  // namespace meshloom::control
