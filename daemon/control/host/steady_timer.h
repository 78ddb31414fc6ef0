// SPDX-License-Identifier: Apache-2.0
// SteadyTimer: calls at times of the clock that nobody sets.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace meshloom::control {

/// One thread for all calls, which sleeps until the next is due. All methods may be called from any
/// thread.
class SteadyTimer {
 public:
  using Clock = std::chrono::steady_clock;

  SteadyTimer() : thread_([this] { run(); }) {}
  ~SteadyTimer() { stop(); }
  SteadyTimer(const SteadyTimer&) = delete;
  SteadyTimer& operator=(const SteadyTimer&) = delete;

  /// Calls `due` once, from the timer's thread, which it must not hold up. Returns a number for
  /// cancel, never 0.
  std::int64_t set(Clock::time_point when, std::function<void()> due);
  /// It is not called any more, unless it was or is being called.
  void cancel(std::int64_t number);
  /// Nothing is called any more once it returns.
  void stop();

 private:
  using Place = std::pair<Clock::time_point, std::int64_t>;  ///< with its number

  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Place, std::function<void()>> calls_;
  std::map<std::int64_t, Clock::time_point> times_;
  std::int64_t next_ = 1;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace meshloom::control
