// SPDX-License-Identifier: Apache-2.0
// RunManager: all runs that clients drive.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/control/host/daemon_service.h"
#include "daemon/control/host/ticker.h"
#include "daemon/control/runs/run_context.h"
#include "daemon/control/runs/run_session.h"

namespace meshloom::control {

/// Any thread may call any method. Ids are names without "runs/".
class RunManager final : public DaemonService {
 public:
  /// Runs of an earlier daemon that had not ended wait for the ranks again.
  explicit RunManager(const RunServices& services, const WaitingMemory::Bounds& waiting = {});
  ~RunManager();
  RunManager(const RunManager&) = delete;
  RunManager& operator=(const RunManager&) = delete;

  /// Lets runs have the ranks. Call when all have joined.
  void start() override;
  /// The run that has the ranks is saved as "stop-STEP" once its verbs in flight are done, for a
  /// later daemon; nothing is begun. Does not wait.
  void request_stop() override;
  /// Waits until no run has the ranks.
  void stop() override;

  /// The run that has the ranks is saved and closed, as where its lease ends; one that cannot be
  /// saved goes on. Those that wait wait on. Does not wait.
  void drain();

  struct Created {
    v1::Run run;
    std::string token;
    std::vector<std::string> warnings;
  };
  Created create(const v1::RunSpec& spec, const RequestKey& key, const std::string& client);
  /// Removes a run that has ended with its saved states, weights and operations; its name is free
  /// again. Throws NotFound, and FailedPrecondition for another client's (RUN_OF_ANOTHER) and for
  /// one that has not ended (RUN_NOT_ENDED).
  void remove(const std::string& id, const std::string& client,
              const Identity& by = Identity::admin());
  /// Saves a run as where its lease ends, and closes it, without its token. Throws NotFound, and
  /// FailedPrecondition for another client's (RUN_OF_ANOTHER).
  void close_by_force(const std::string& id, const std::string& client,
                      const Identity& by = Identity::admin());
  /// Throws NotFound (RUN_NOT_FOUND).
  std::shared_ptr<RunSession> find(const std::string& id) const;
  /// Up to `size` runs after `position` (0 at first), oldest first; the position to go on from, 0
  /// at the end.
  std::pair<std::vector<v1::Run>, std::int64_t> list(std::int64_t position, int size,
                                                     const IsShown& is_shown = nullptr) const;
  /// Nothing if there is no such run.
  std::optional<Ownership> ownership(const std::string& id) const;
  struct Owned {
    std::string owner;
    bool open = false;  ///< it has not ended
  };
  /// Of all runs, by id.
  std::map<std::string, Owned> owners() const;

  Operations& operations() { return operations_; }
  /// The run of an operation that is kept. Throws Aborted (RUN_RECOVERED) for one that was lost
  /// with its epoch, NotFound.
  std::shared_ptr<RunSession> session_of(const std::string& operation) const;
  /// The operation, with what it waits for; its outcome is told if the call is `of_holder`
  /// (RunSession::is_of_holder). Throws as session_of.
  v1::Operation operation(const std::string& name, bool of_holder);
  /// What a run's model can continue, with its tokenizer; by its config while the ranks have not
  /// made it. Throws as RunSession::check_not_ended.
  train::PromptLimits prompt_limits(const RunSession& run) const;

 private:
  using SessionPtr = std::shared_ptr<RunSession>;
  struct Item {
    SessionPtr session;
    std::thread thread;  ///< that drives it
  };

  void add(v1::RunRecord record);
  void drive(const SessionPtr& session);
  std::string free_id(const std::string& wanted) const;
  void tick();
  void check_times() const;
  void collect_states() const;
  /// Before another run of `client` is made: makes room for it. Throws ResourceExhausted
  /// (TOO_MANY_RUNS).
  void forget_oldest(const std::string& client, const Identity& by);
  struct Forgotten {
    SessionPtr session;
    std::thread thread;  ///< ends by itself
  };
  /// With the mutex: nobody finds the run any more.
  Forgotten take_out(std::int64_t number);
  /// Without it. Returns when no trace of them is left.
  void forget(std::vector<Forgotten> runs);

  Operations operations_;
  RunContext context_;
  mutable std::mutex mutex_;
  std::condition_variable started_changed_;
  bool started_ = false;
  std::int64_t next_number_ = 1;
  std::map<std::int64_t, Item> items_;  ///< in order of creation
  std::map<std::string, std::int64_t> by_id_;
  std::mutex joining_;   ///< taken before the other
  std::mutex creating_;  ///< one creation at a time; taken before the other
  int ticks_ = 0;        ///< since the last collect_states(); of the ticker's thread
  std::unique_ptr<Ticker> ticker_;
};

}  // namespace meshloom::control
