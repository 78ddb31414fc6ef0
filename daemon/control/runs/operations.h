// SPDX-License-Identifier: Apache-2.0
// Operations: what became of the verbs of runs, in memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/states.h"
#include "daemon/control/access/limits.h"
#include "daemon/control/host/wakeable.h"
#include "daemon/control/runs/sample_progress.h"
#include "v1/run.pb.h"

namespace meshloom::control {

/// "operations/RUN/EPOCH/KEY"; the key of a verb is its number.
std::string operation_name(const std::string& run, std::int64_t epoch, const std::string& key);

/// All methods may be called from any thread. Names that are not known throw NotFound
/// (OPERATION_NOT_FOUND).
///
/// An operation whose outcome was not told yet stays until its run is closed, whatever room it
/// takes; what was told, or is of a closed run, is spare: it stays while it is among the newest
/// kKept of its run and younger than a week, and where all outcomes together are more than may be
/// kept, those that have been spare for longest go first. Were they kept, a run whose last kKept
/// outcomes fill the room could never take a verb again. While somebody waits for an operation or
/// watches it, it stays in any case.
class Operations {
 public:
  static constexpr std::size_t kKept = 1000;
  static constexpr std::size_t kInlineBytes = 1 << 20;

  /// `most_bytes`: of all outcomes together. No operation is taken while more were not told.
  explicit Operations(std::size_t most_bytes) : Operations(limits_of(most_bytes)) {}
  explicit Operations(const Limits& limits) : limits_(limits) {}

  /// Whose the outcomes of a run are: of one owner only so many are kept as of all, too.
  void set_owner(const std::string& run, const std::string& owner);
  /// Bytes of outcomes by owner.
  std::map<std::string, std::int64_t> bytes_by_owner() const;

  using Progress = std::shared_ptr<const SampleProgress>;
  using Result = std::shared_ptr<const v1::VerbResult>;
  /// A serialised VerbResult.
  using Bytes = std::shared_ptr<const std::string>;

  /// A new one, WAITING. Throws ResourceExhausted (RESULTS_FULL).
  v1::Operation add(const std::string& run, const std::string& name, const std::string& verb,
                    Progress progress = nullptr);
  /// One that an earlier daemon has carried out, and whose outcome is durable.
  void restore(const std::string& run, const std::string& name, const std::string& verb,
               Result result);
  /// What the ranks have of an operation, for whoever cancels it.
  class Stoppable {
   public:
    virtual ~Stoppable() = default;
    /// False where the operation goes on. Must not block, and calls nothing of the operations.
    virtual bool request_stop() = 0;
  };
  /// The ranks have it. From here on it can be cancelled only by `running`, not at all if that is
  /// null. False if it has ended, also if it is not kept any more.
  bool begin(const std::string& name, std::shared_ptr<Stoppable> running = nullptr);
  /// Its progress has grown: tells those who watch it.
  void progressed(const std::string& name);
  // Ends it; nothing happens if it has ended. A result is never null.
  void succeed(const std::string& name, Result result);
  void fail(const std::string& name, const v1::ErrorDetails& error);
  /// Throws FailedPrecondition (OPERATION_BEGUN, OPERATION_ENDED).
  v1::Operation cancel(const std::string& name);

  /// With a result of at most kInlineBytes, which is then told if its run's holder asks.
  v1::Operation get(const std::string& name, bool of_holder = true);
  bool has(const std::string& name) const;
  /// It is kept, and has not ended.
  bool is_open(const std::string& name) const;
  std::string run_of(const std::string& name) const;
  /// Operations of the run that have not ended.
  std::int64_t open_of(const std::string& run) const;
  /// Wakes `waiter` once the operation has ended, at once if it has, from the thread that ends it.
  /// The operation stays until wake() returns. Returns a number for forget_waiter, 0 if it had
  /// ended.
  std::int64_t when_ended(const std::string& name, std::weak_ptr<Wakeable> waiter);
  /// Wakes `watcher` after each change of the operation and its progress, from the thread that
  /// makes it. Returns a number for forget_waiter.
  std::int64_t watch(const std::string& name, std::weak_ptr<Wakeable> watcher);
  void forget_waiter(const std::string& name, std::int64_t waiter);
  struct Seen {
    v1::Operation operation;  ///< without its result
    bool begun = false;       ///< it was RUNNING once
    Progress progress;        ///< of a sample, unless it has failed
  };
  Seen look(const std::string& name) const;
  /// Up to `size` operations of a run after `position` (0 at first), oldest first, without results;
  /// the position to go on from, 0 at the end.
  std::pair<std::vector<v1::Operation>, std::int64_t> list(const std::string& run,
                                                           std::int64_t position, int size) const;
  /// Null if it has none, or one of more than kInlineBytes, which is kept serialised alone.
  Result result(const std::string& name) const;
  /// Returns null if it has none. Of a large one all readers have the same. It counts as delivered
  /// once mark_delivered is called.
  Bytes serialised(const std::string& name) const;
  void mark_delivered(const std::string& name);
  /// Results that were not delivered may go from here on.
  void close_run(const std::string& run);
  /// A closed run with all its operations.
  void forget_run(const std::string& run);

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiter {
    std::weak_ptr<Wakeable> who;
    bool at_end = false;  ///< is woken then alone
  };
  struct Outcome {
    Result result;     ///< null for a large one
    Bytes serialised;  ///< of a large one
    std::size_t wire_bytes = 0;
    std::size_t bytes = 0;  ///< as it lies in memory
  };
  struct Entry {
    v1::Operation operation;  ///< without its result
    std::string run;
    std::int64_t number = 0;  ///< in order of add
    Outcome outcome;
    Progress progress;
    std::shared_ptr<Stoppable> stop;
    bool begun = false;
    std::int64_t spare = 0;  ///< its place in spare_; 0: its outcome was not told
    Clock::time_point taken, ended;
    std::map<std::int64_t, Waiter> waiters;

    /// Nobody waits for it.
    bool may_go() const { return spare > 0 && waiters.empty(); }
    bool has_ended() const { return base::is_final(operation.state()); }
    v1::Operation view() const;
  };
  struct OfRun {
    std::map<std::int64_t, std::string> names;  ///< by number
    std::int64_t open = 0;
    bool closed = false;
    std::string owner;
  };

  Entry& entry(const std::string& name);
  const Entry& entry(const std::string& name) const;
  using Wakes = std::vector<std::weak_ptr<Wakeable>>;
  /// With the mutex held: who is to be woken without it.
  static Wakes wakes_of(const Entry& changed);
  /// Without the mutex: a large result takes its time.
  static Outcome outcome_of(Result result);
  Wakes end(Entry& over, v1::OperationState state, const v1::ErrorDetails* error, Outcome outcome);
  /// The same with what belongs to it, unless it has ended or is not kept any more.
  void end_kept(const std::string& name, v1::OperationState state, const v1::ErrorDetails* error,
                Outcome outcome);
  /// Forgets those that were woken at its end.
  void forget_woken(const std::string& name);
  std::int64_t add_waiter(Entry& waited, Waiter waiter);
  Entry& add_entry(const std::string& run, const std::string& name, const std::string& verb);
  /// Of one that has ended.
  void make_spare(Entry& ended);
  void prune(OfRun& run);
  void make_room(const std::string& owner);
  static Limits limits_of(std::size_t most_bytes);
  void erase(const std::string& name);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, OfRun> runs_;
  std::map<std::int64_t, std::string> spare_;  ///< those that may go, the first of them first
  std::map<std::string, std::int64_t> owned_;  ///< of these, by owner
  std::int64_t bytes_ = 0;                     ///< of results and errors, as they lie in memory
  std::int64_t next_number_ = 1;
};

}  // namespace meshloom::control
