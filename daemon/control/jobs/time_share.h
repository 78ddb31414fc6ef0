// SPDX-License-Identifier: Apache-2.0
// TimeShare: keeps one activity below its share of the time, in any second.
#pragma once

#include <chrono>
#include <deque>

namespace meshloom::control {

/// Used by one thread. Looks back over a second, longer if one piece alone needs more.
class TimeShare {
 public:
  using Clock = std::chrono::steady_clock;

  /// `share` is above 0 and at most 1.
  explicit TimeShare(double share) : share_(share) {}

  /// A piece of work that took `time` has ended now. Pieces are told in the order of their ends.
  void spent(Clock::duration time, Clock::time_point now);
  /// How many pieces of `time` fit in from now on, one after the other; 0: not even one.
  int fitting(Clock::duration time, Clock::time_point now);
  /// When one piece of `time` fits in.
  Clock::time_point next(Clock::duration time, Clock::time_point now);

 private:
  struct Piece {
    Clock::time_point end;
    Clock::duration time;
  };
  Clock::duration window(Clock::duration time) const;
  Clock::duration allowance(Clock::duration window) const;
  void forget(Clock::time_point before);

  double share_;
  std::deque<Piece> pieces_;
};

}  // namespace meshloom::control
