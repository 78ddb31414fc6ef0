// SPDX-License-Identifier: Apache-2.0
// VerbSequence: verbs of one run in the order of their numbers, whatever order they arrive in.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace meshloom::control {

struct Verb;

/// Numbers begin with 1 and each is used once. Not synchronised.
class VerbSequence {
 public:
  using Clock = std::chrono::steady_clock;
  using VerbPtr = std::shared_ptr<Verb>;

  /// A missing number is waited for until nothing has arrived for `gap_timeout`.
  VerbSequence(std::int64_t next, Clock::duration gap_timeout)
      : next_(next), gap_timeout_(gap_timeout) {}

  Clock::duration gap_timeout() const { return gap_timeout_; }
  /// The number that runs next.
  std::int64_t next() const { return next_; }
  /// The number that a client gives its next verb: behind all that have arrived.
  std::int64_t next_new() const { return waiting_.empty() ? next_ : waiting_.rbegin()->first + 1; }
  /// Whether a verb has used it up, or it was lost in a gap.
  bool used_up(std::int64_t seq) const { return seq < next_ || waiting_.count(seq) > 0; }
  /// The verb with this number, which is not used up.
  void add(std::int64_t seq, VerbPtr verb, Clock::time_point now) {
    waiting_[seq] = std::move(verb);
    last_arrival_ = now;
  }
  /// What take() gives; null if that is nothing.
  const Verb* front() const { return ready() ? waiting_.begin()->second.get() : nullptr; }
  /// take() has something to give.
  bool ready() const { return !waiting_.empty() && waiting_.begin()->first == next_; }
  /// The next verb, if it is there; its number is then used up.
  VerbPtr take();
  /// The number that others wait for; nothing if there is no gap.
  std::optional<std::int64_t> missing() const;
  /// When the gap ends by itself; nothing if there is none.
  std::optional<Clock::time_point> gap_ends() const;
  /// Gives the missing number up, and all that wait with it, which are returned in order.
  std::vector<VerbPtr> give_up_gap();
  /// All that wait, in order. Their numbers are used up.
  std::vector<VerbPtr> take_all() { return give_up_gap(); }

 private:
  std::int64_t next_;
  Clock::duration gap_timeout_;
  std::map<std::int64_t, VerbPtr> waiting_;
  Clock::time_point last_arrival_;
};

}  // namespace meshloom::control
