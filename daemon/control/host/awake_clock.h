// SPDX-License-Identifier: Apache-2.0
// AwakeClock: the time in which this process ran.
#pragma once

#include <algorithm>
#include <chrono>

namespace meshloom::control {

/// A process that was stopped, or a machine that slept, must not take the time it lost for the
/// silence of others. A gap between two calls of observe() counts as kLongestGap at most, so it is
/// called more often than that. One thread at a time.
class AwakeClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;
  static constexpr std::chrono::milliseconds kLongestGap{1000};

  /// Returns the time since the first observation.
  Duration observe(Clock::time_point now) {
    if (!started_) start_ = last_ = now;
    started_ = true;
    lost_ += std::max<Duration>(now - last_ - kLongestGap, Duration::zero());
    last_ = std::max(last_, now);
    return at(now);
  }
  /// Returns the same without being an observation.
  Duration at(Clock::time_point now) const { return now - start_ - lost_; }

 private:
  bool started_ = false;
  Clock::time_point start_, last_;
  Duration lost_{};
};

}  // namespace meshloom::control
