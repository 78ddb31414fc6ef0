// SPDX-License-Identifier: Apache-2.0
// GoodputClock: where the time of a job goes, from its submission on.
#pragma once

#include <chrono>

#include "v1/job.pb.h"
#include "v1/metrics.pb.h"

namespace meshloom::control {

/// Counts the time since Goodput.until up to `now` (seconds since 1970) to what a job in this state
/// has lost it to: queue, held, paused, drained, start or recovery. A clock that went back counts
/// nothing, and neither does a time without beginning (until 0).
void count_state(v1::JobState state, v1::PauseCode pause, double now, v1::Goodput* goodput);

/// The time of an attempt, which its thread divides by what it does. Begins with what the job has
/// before. Used by one thread.
class GoodputClock {
 public:
  enum class Cause { kProductive, kStart, kTokenize, kValidation, kSample, kSave };

  explicit GoodputClock(const v1::Goodput& before);

  /// What follows is for this.
  void enter(Cause cause);
  /// Up to now.
  v1::Goodput now();
  /// A checkpoint holds all that was done so far.
  void saved();
  /// Up to now, of an attempt whose steps behind the last checkpoint are to be done again.
  v1::Goodput now_without_lost_steps();

  /// For one thing that is done between others.
  class During {
   public:
    During(GoodputClock& clock, Cause cause) : clock_(clock), before_(clock.cause_) {
      clock_.enter(cause);
    }
    ~During() { clock_.enter(before_); }
    During(const During&) = delete;
    During& operator=(const During&) = delete;

   private:
    GoodputClock& clock_;
    const Cause before_;
  };

 private:
  using Clock = std::chrono::steady_clock;

  v1::Goodput goodput_;
  double saved_productive_;  ///< that a checkpoint holds
  Cause cause_ = Cause::kStart;
  Clock::time_point since_ = Clock::now();
};

}  // namespace meshloom::control
