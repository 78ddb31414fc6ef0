// SPDX-License-Identifier: Apache-2.0
// RunSession: one run that a client drives: its verbs in order, its lease, its states.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "daemon/control/access/ownership.h"
#include "daemon/control/runs/run_lifecycle.h"
#include "daemon/control/runs/run_parts.h"
#include "daemon/control/runs/run_sample.h"
#include "daemon/control/runs/verb.h"
#include "kernels/base/error.h"
#include "v1/run.pb.h"

namespace meshloom::control {

/// What clients and the manager ask of a run. One thread calls drive(); all other methods may be
/// called from any thread. It has no lock of its own. Shared by those who use it.
class RunSession : public std::enable_shared_from_this<RunSession> {
 public:
  /// A run that is durable already. After a restart of the daemon it is as
  /// RunLifecycle::restarted() made it. The context outlives it.
  RunSession(RunContext& context, v1::RunRecord record);

  // --- For clients.
  const std::string& id() const { return parts_.id; }
  /// The name of the client that made it.
  const std::string& client() const { return parts_.client; }
  Ownership ownership() const { return ownership_of(life_.lock().run()); }
  /// Lets `with` look at the run, or no more.
  void share(const std::string& with, bool take_back) { life_.share(with, take_back); }
  /// What GetRun returns.
  v1::Run view() const;
  /// What ListRuns returns of it.
  v1::Run summary() const;
  v1::RunConfig resolved() const { return life_.lock().run().resolved(); }
  /// Renews the lease for a call that has the run's token. Throws FailedPrecondition
  /// (TOKEN_INVALID) for another.
  void check_holder(const std::string& token);
  /// Whether a call that needs no token is one of the client that holds the run, which renews its
  /// lease: it has the token. Without one it is another's, with a wrong one it throws as
  /// check_holder.
  bool is_of_holder(const std::string& token);
  /// Holds the lease for a call of the client that holds the run (is_of_holder); holds nothing for
  /// another's.
  Hold hold_lease_of(const std::string& token);
  /// A repeat of the creation: the token before it ends.
  void replace_token(const std::string& digest) { life_.replace_token(digest); }
  /// Throws as RunLifecycle::Locked::check_not_ended.
  void check_not_ended() const { life_.lock().check_not_ended(); }
  /// Throws as check_not_ended.
  v1::HeartbeatResponse heartbeat() const;
  /// Throws as RunLifecycle::Locked::check_open and VerbQueue::submit.
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
  void close(const std::optional<Error>& cause = std::nullopt) { life_.close(cause); }
  /// Once what has begun is done, saves the run as where its lease ends, and closes it (DRAINED).
  /// Where it cannot be saved it goes on, with a note. Closes one that has no weights yet at once.
  void drain() { life_.drain(); }
  RunStates& states() { return parts_.states; }
  RunWeights& weights() { return parts_.weights; }
  /// Why an operation that is not kept is gone: throws Aborted (RUN_RECOVERED) if it is of an
  /// earlier epoch.
  void explain_lost(std::int64_t epoch) const { life_.explain_lost(epoch); }
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
  void forget() { life_.forget(); }
  bool ended() const { return life_.ended(); }  ///< CLOSED or FAILED
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
  /// Ends a run that nobody drives, or not to its end.
  void give_up(const Error& cause) { life_.give_up(cause); }
  /// Something that drive() waits for may have changed.
  void wake() { life_.wake(); }

 private:
  /// What was saved before the daemon was started is told of still.
  void restore_saves();
  v1::Run told(const RunStore::StateRoom& states) const;
  v1::RanksWait ranks_wait() const;
  std::int64_t lease_left_ms(const v1::Run& run) const;
  /// The operation of an epoch before `epoch` that has saved what `request` asks for; nothing:
  /// there is none.
  std::optional<v1::Operation> finished_save(const Verb::Request& request,
                                             std::int64_t epoch) const;

  RunParts parts_;
  RunLifecycle life_;
};

}  // namespace meshloom::control
