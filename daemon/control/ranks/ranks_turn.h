// SPDX-License-Identifier: Apache-2.0
// RanksTurn: who has the ranks. Jobs, evaluations and runs that clients drive take turns, first
// come first served, but for a job that was resumed, which comes first.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/host/hold.h"

namespace meshloom::control {

/// Who has the ranks holds them by a Hold, which gives them back; this outlives it. Any thread may
/// call any method.
class RanksTurn {
 public:
  /// Where in the queue: kFirst comes before all that wait.
  enum class Place { kLast, kFirst };
  /// Who waits: asked by the thread that waits, without a lock.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    virtual bool gives_up() = 0;
    /// Where it has become another, the waiter moves there without having left the queue.
    virtual Place place() { return Place::kLast; }
  };
  /// Waits until nobody has the ranks and all that come before have had them or given up. Holds
  /// nothing if the waiter gives up first, who is asked from time to time. `who` is the name of a
  /// resource, which waits or has its turn once at a time.
  Hold acquire(const std::string& who, Waiter& waiter);
  /// The same, where the waiter is asked after each wake() alone: many may wait so at no cost.
  Hold acquire_when_woken(const std::string& who, Waiter& waiter);
  /// What some waiter says may have changed.
  void wake();
  /// The same without waiting: holds nothing if somebody has the ranks or waits, or it is closed.
  Hold try_acquire(const std::string& who);
  /// While it is closed nobody gets the ranks; who has them keeps them.
  void set_open(bool open);
  bool is_open() const;
  /// Who has the ranks; empty: nobody.
  std::string holder() const;
  /// Who has the ranks, then those that come before `who`, in order. `place` is that of one that
  /// does not wait yet.
  std::vector<std::string> ahead_of(const std::string& who, Place place = Place::kLast) const;
  /// Since it entered the queue; nothing for one that is not in it.
  std::optional<std::chrono::steady_clock::duration> waited(const std::string& who) const;

 private:
  /// Makes the hold of `who`, to whom the ranks are given.
  Hold hold_of(const std::string& who);
  void release(const std::string& who);
  /// Asks again after `look_up`, or not without being woken.
  Hold wait_for_turn(const std::string& who, Waiter& waiter,
                     std::optional<std::chrono::milliseconds> look_up);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> queue_;
  std::map<std::string, std::chrono::steady_clock::time_point> entered_;  ///< of those in the queue
  std::string holder_;                                                    ///< empty: nobody
  std::uint64_t wakes_ = 0;                                               ///< so many
  bool open_ = true;
};

}  // namespace meshloom::control
