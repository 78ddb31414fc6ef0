// SPDX-License-Identifier: Apache-2.0
// VerbQueue: the verbs of one run, from their arrival to the answer of the ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/runs/operations.h"
#include "daemon/control/runs/run_states.h"
#include "daemon/control/runs/verb_launch.h"
#include "daemon/control/runs/verb_sequence.h"
#include "daemon/control/runs/waiting_memory.h"
#include "daemon/control/stores/transient_uploads.h"
#include "kernels/base/error.h"

namespace meshloom::control {

/// A verb whose gradients the next optimizer step has to do without, and so fails for.
struct MissingGradients {
  std::int64_t seq = 0;
  std::string cause;
};

/// Verbs wait in the order of their numbers, are taken by the thread that gives them to the ranks,
/// and leave in the same order by the thread that collects answers. It is thread safe and takes its
/// own mutex. With it a verb that arrives is checked, counted and becomes an operation (RunStates,
/// TransientUploads, WaitingMemory and Operations are called); what fails ends without it.
class VerbQueue {
 public:
  using Clock = VerbSequence::Clock;
  using Verbs = std::vector<VerbSequence::VerbPtr>;
  /// These outlive it.
  struct Parts {
    Operations& operations;
    WaitingMemory& waiting;
    TransientUploads& uploads;
    const RunStates& states;
    /// Bytes of uploads that verbs in flight have taken, and one more verb if none has.
    std::int64_t most_upload_bytes = 0;
  };
  struct Run {
    std::string id, client;
  };

  VerbQueue(const Parts& parts, Run run, std::int64_t next, std::chrono::seconds gap_timeout)
      : parts_(parts), run_(std::move(run)), sequence_(next, gap_timeout) {}

  // --- For clients.
  /// A verb that has arrived. Make it before locks are taken: a large one takes its time.
  struct Arrival {
    explicit Arrival(Verb::Request sent)
        : digest(digest_of(sent)), bytes(bytes_of(sent)), request(std::move(sent)) {}
    std::string digest;
    std::size_t bytes = 0;
    Verb::Request request;
  };
  /// Takes a verb of the run's epoch, or returns the operation that it became before. Throws
  /// InvalidArgument (SEQUENCE_INVALID, SEQUENCE_REUSED, and what is wrong with the verb),
  /// FailedPrecondition (SEQUENCE_USED), ResourceExhausted. One that is refused for more than its
  /// number has used that up.
  v1::Operation submit(Arrival arrival);
  std::int64_t next() const;      ///< VerbSequence::next
  std::int64_t next_new() const;  ///< VerbSequence::next_new
  /// Says in words what verb `seq` waits for beside the ranks.
  std::string waits_for(std::int64_t seq) const;
  /// Gives a gap up whose time is over: what waits behind it fails with SEQUENCE_GAP. False if
  /// there is none.
  bool end_gap(Clock::time_point now);
  /// All that wait fail; their numbers are used up.
  void fail_waiting(const Error& error);
  /// Repeats of verbs are not told from others any more: the run has ended.
  void forget_numbers();
  /// All that wait fail, in front of an epoch whose verbs are numbered from `next` on.
  void begin_epoch(std::int64_t next, const Error& error);

  // --- For the thread that gives verbs to the ranks.
  bool none_in_flight() const;
  /// The next verb is there, and the ranks may have it beside those in flight.
  bool may_start() const;
  struct Taken {
    std::shared_ptr<Verb> verb;
    std::optional<MissingGradients> gap;  ///< in front of it; the ranks are to be told
  };
  /// Only where may_start() is true, by the thread that has asked.
  Taken take();
  void add_in_flight(std::vector<VerbInFlight> begun);
  /// Asks the ranks to leave what can be left before its end.
  void stop_in_flight() const;

  // --- For the thread that collects answers.
  /// Waits for a verb in flight: the oldest, which stays where it is until it is ended. Null once
  /// nothing is in flight and end_collecting() was called.
  VerbInFlight* wait_for_oldest();
  void begin_collecting();
  void end_collecting();
  /// The oldest has failed, and leaves the queue. Returns the error as its client is told it: an
  /// optimizer step that had to do without gradients names the first verb whose these were.
  v1::ErrorDetails fail_oldest(const std::exception_ptr& error);
  void finish_oldest(const v1::VerbResult& result);

 private:
  [[noreturn]] void refuse_used(std::int64_t seq, const std::string& digest) const;
  void fail(const Verbs& verbs, const Error& error) const;

  const Parts parts_;
  const Run run_;
  mutable std::mutex mutex_;
  std::condition_variable begun_;
  VerbSequence sequence_;
  std::map<std::int64_t, std::string> digests_;  ///< of verbs of this epoch, by number
  std::deque<VerbInFlight> in_flight_;
  bool collecting_ = true;  ///< or about to
  /// The first since the last optimizer step, as far as answers are collected, which is in the
  /// order of numbers.
  std::optional<MissingGradients> missing_;
  /// The first that was lost in a gap; the ranks are not told yet.
  std::optional<MissingGradients> gap_;
};

}  // namespace meshloom::control
