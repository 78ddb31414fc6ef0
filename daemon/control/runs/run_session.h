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

#include "daemon/control/jobs/admission.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/ranks/ranks_turn.h"
#include "daemon/control/runs/operations.h"
#include "daemon/control/runs/run_lease.h"
#include "daemon/control/runs/run_sample.h"
#include "daemon/control/runs/run_snapshot.h"
#include "daemon/control/runs/run_states.h"
#include "daemon/control/runs/run_weights.h"
#include "daemon/control/runs/verb_launch.h"
#include "daemon/control/runs/verb_queue.h"
#include "daemon/control/runs/waiting_memory.h"
#include "daemon/control/stores/notes.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/transient_uploads.h"
#include "kernels/base/error.h"

namespace meshloom::control {

/// What all runs of a daemon share; outlives them.
struct RunWorld {
  Executor& executor;
  RanksTurn& turn;
  RunStore& store;
  Operations& operations;
  SampleScheduler& scheduler;
  Admission& admission;
  const StateDir& state;
  std::filesystem::path data_dir;
  TransientUploads& uploads;
  RunStates::Uptime uptime;
  /// As VerbQueue::Parts::most_upload_bytes.
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
  /// Renews the lease for a call that has the run's token. Throws FailedPrecondition
  /// (TOKEN_INVALID) for another.
  void check_holder(const std::string& token);
  /// Whether a call that needs no token is one of the client that holds the run, which renews its
  /// lease: it has the token. Without one it is another's, with a wrong one it throws as
  /// check_holder.
  bool is_of_holder(const std::string& token) {
    if (token.empty()) return false;
    check_holder(token);
    return true;
  }
  /// As RunLease::hold, for a call of the client that holds the run (see is_of_holder); null for
  /// another's.
  std::shared_ptr<const void> hold_lease_of(const std::string& token) {
    return is_of_holder(token) ? lease_->hold() : nullptr;
  }
  /// A repeat of the creation: the token before it ends.
  void replace_token(const std::string& digest);
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
  /// What it has saved.
  RunStates& states() { return states_; }
  const RunStates& states() const { return states_; }
  RunWeights& weights() { return weights_; }
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

  /// What was saved before the daemon was started is told of still.
  void restore_saves();
  v1::Run told(const RunStore::StateRoom& states) const;
  v1::RanksWait ranks_wait() const;  ///< without the mutex
  void add_note(const std::string& note) { keep_newest_note(note, run_.mutable_notes()); }
  bool has_ended() const { return control::has_ended(run_); }
  std::int64_t lease_left_ms() const { return has_ended() ? 0 : lease_->left().count(); }
  void check_open(std::int64_t epoch) const;
  void check_not_ended_locked() const;
  /// The operation of an earlier epoch that has saved what `request` asks for; null: there is none.
  std::optional<v1::Operation> finished_save(const Verb::Request& request) const;
  /// Its run goes on with number `next`.
  Error recovered_error(const std::string& cause, std::int64_t next) const;
  Error closed_error() const;  ///< of what had not ended
  static Error drained_error() { return FailedPrecondition("the daemon is drained", "DRAINED"); }
  void fail_waiting(const Error& error);
  void set_state(v1::RunState state);
  void end_as(v1::RunState state);
  void persist();  ///< without the mutexes
  VerbPlace place();
  void check_sample(const SampleOrder& order) const;
  v1::Operation add_sample(std::int64_t epoch, const std::shared_ptr<SampleProgress>& progress);
  void begin_sample(std::int64_t epoch, const std::string& operation, SampleOrder order,
                    const std::shared_ptr<SampleProgress>& progress);
  /// For one more that waits. Throws ResourceExhausted (VERBS_FULL).
  WaitingMemory::Hold hold_waiting(const SampleOrder& order);
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

  // The thread of drive(), and the one that collects answers.
  /// From its newest state that can be read, else as its spec says; false, with the cause, if it
  /// cannot be made.
  bool make_on_ranks();
  bool make_ready();  ///< and takes what has waited for that
  void create_on_ranks(const v1::SavedState* own);
  void skip_state(const std::string& name, const Error& damage);
  /// The next epoch, from the newest state; verbs that wait fail. With the mutex.
  void begin_epoch(const Error& cause);
  void start_next(const VerbQueue::Taken& taken);
  /// What the run holds is lost if the start of a verb fails where none can.
  void start_safely(const VerbQueue::Taken& taken);
  VerbInFlight poison(const MissingGradients& missing);
  /// The tokens of the text that a verb names, until the run is to end. Without the mutex.
  train::TokenizedText tokenize(v1::DataReference* reference);
  void collect();
  void note_step(const VerbInFlight& verb, const v1::VerbResult& result);
  /// What the client of the oldest verb in flight is told, which has failed.
  v1::ErrorDetails fail_oldest(const std::exception_ptr& error);
  enum class Act { kStart, kMake, kSave, kEnd };
  struct Next {
    Act act;
    VerbQueue::Taken taken;  ///< of kStart
  };
  /// Waits. Where the run was lost its next epoch has begun, and it is to be made anew.
  Next wait_for_next();
  /// Verbs in their order until the run is to end; false if it could not be made anew.
  bool carry_out();
  /// False, with a note, if it cannot be.
  bool save_last(const std::string& name, std::int64_t ttl_seconds);
  void save_and_close();
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
  RunStates states_;
  RunWeights weights_;
  VerbQueue queue_;
  const std::shared_ptr<RunLease> lease_;
  std::optional<Error> lost_;  ///< what the run held on the ranks is lost
  std::optional<End> end_;     ///< it is to end
  bool draining_ = false;      ///< nothing is begun before it is saved
  bool driven_ = false;        ///< the ranks may know of it
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
    WaitingMemory::Hold memory;
  };
  std::vector<WaitingSample> waiting_samples_;  ///< for the ranks, oldest first
  /// Operations of samples that found what the run held lost; the next epoch ends them.
  std::vector<std::string> lost_samples_;
  std::mutex persist_mutex_;  ///< taken before the other
  bool forgotten_ = false;    ///< by persist_mutex_
};

}  // namespace meshloom::control
