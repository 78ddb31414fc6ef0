// SPDX-License-Identifier: Apache-2.0
// Operations: what became of the verbs of runs, in memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "v1/run.pb.h"

namespace meshloom::control {

/// All methods may be called from any thread. Names that are not known throw NotFound
/// (OPERATION_NOT_FOUND).
///
/// An operation whose result was not told yet stays until its run is closed; what was told, or is
/// of a closed run, stays while it is among the newest kKept of its run, younger than a week, and
/// there is room for new results.
class Operations {
 public:
  static constexpr std::size_t kKept = 1000;
  static constexpr std::size_t kInlineBytes = 1 << 20;

  /// `most_bytes`: of all results that were not told together, beyond which no operation is taken.
  explicit Operations(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// A new one, WAITING. Throws ResourceExhausted (RESULTS_FULL).
  v1::Operation add(const std::string& run, const std::string& name, const std::string& verb);
  /// The ranks have it: it cannot be cancelled any more. False if it has ended.
  bool begin(const std::string& name);
  // Ends it; nothing happens if it has ended.
  void succeed(const std::string& name, v1::VerbResult result);
  void fail(const std::string& name, const v1::ErrorDetails& error);
  /// Throws FailedPrecondition (OPERATION_BEGUN, OPERATION_ENDED).
  v1::Operation cancel(const std::string& name);

  /// With a result of at most kInlineBytes, which is then told.
  v1::Operation get(const std::string& name);
  bool has(const std::string& name) const;
  std::string run_of(const std::string& name) const;
  /// Operations of the run that have not ended.
  std::int64_t open_of(const std::string& run) const;
  /// Calls `ended` once the operation has ended, at once if it has, from the thread that ends it.
  /// It must not block. Returns a number for forget_waiter.
  std::int64_t when_ended(const std::string& name, std::function<void()> ended);
  void forget_waiter(const std::string& name, std::int64_t waiter);
  /// Up to `size` operations of a run after `position` (0 at first), oldest first, without results;
  /// the position to go on from, 0 at the end.
  std::pair<std::vector<v1::Operation>, std::int64_t> list(const std::string& run,
                                                           std::int64_t position, int size) const;
  /// Null if it has none. Told once `told` is called.
  std::shared_ptr<const v1::VerbResult> result(const std::string& name) const;
  void told(const std::string& name);
  /// Results that were not told may go from here on.
  void close_run(const std::string& run);
  /// A closed run with all its operations.
  void forget_run(const std::string& run);

 private:
  using Clock = std::chrono::steady_clock;
  using Waiters = std::map<std::int64_t, std::function<void()>>;
  struct Entry {
    v1::Operation operation;  ///< without its result
    std::string run;
    std::int64_t number = 0;  ///< in order of add
    std::shared_ptr<const v1::VerbResult> result;
    bool told = false;
    Clock::time_point taken, ended;
    Waiters waiters;

    /// Nobody waits for it.
    bool may_go(bool run_closed) const { return has_ended() && (told || run_closed || !result); }
    bool has_ended() const { return operation.state() >= v1::OPERATION_STATE_SUCCEEDED; }
    v1::Operation view() const;
  };
  struct OfRun {
    std::map<std::int64_t, std::string> names;  ///< by number
    std::int64_t open = 0;
    bool closed = false;
  };

  Entry& entry(const std::string& name);
  const Entry& entry(const std::string& name) const;
  /// With the mutex held. Returns those to notify without it.
  Waiters end(Entry& over, v1::OperationState state, const v1::ErrorDetails* error,
              std::shared_ptr<const v1::VerbResult> result);
  static void notify(const Waiters& waiters);
  void prune(OfRun& run);
  void make_room();

  const std::size_t most_bytes_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, OfRun> runs_;
  std::size_t bytes_ = 0;  ///< of results
  std::int64_t next_number_ = 1;
};

}  // namespace meshloom::control
