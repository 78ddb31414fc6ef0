// SPDX-License-Identifier: Apache-2.0
// What the ranks of one world do when one of them fails alone: all hear of it, give up what they
// wait for, and meet.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"

namespace meshloom::comm {

/// Failure is the abort record: who failed first, and how.
struct Failure {
  int rank = -1;     ///< of the world
  std::string text;  ///< its last collective, kind and text of its error; shortened to 1.5 KB
};

/// PeerFailed is thrown by waits and calls of every group of the world once a rank has failed.
class PeerFailed : public Aborted {
 public:
  PeerFailed(const std::string& what, Failure failure)
      : Aborted(what, "PEER_FAILED", {{"failed_rank", std::to_string(failure.rank)}}),
        failure_(std::move(failure)) {}
  const Failure& failure() const { return failure_; }

 private:
  Failure failure_;
};

/// GroupBroken is thrown by what a group had in flight, and by further calls, once one of its
/// collectives ended at its deadline, by an abort or by a dead rank. The failure is not this
/// call's: ranks that met it first throw its own error, so whoever sees this one is as out of step
/// as they are.
class GroupBroken : public FailedPrecondition {
 public:
  explicit GroupBroken(const std::string& what) : FailedPrecondition(what, "GROUP_POISONED") {}
};

/// There is one per rank and world, for all groups of the rank; used by its training thread.
///
/// A failure goes like this. The rank that fails calls raise() and recover(). The others' waits
/// throw PeerFailed, within milliseconds, and they call recover() too; so does a rank that waits
/// for nothing, once it is told. recover() meets all ranks, and what comes after it is a new epoch.
class FailureDomain {
 public:
  struct Recovery {
    /// The reports hold the text that each rank gave to recover(), in rank order.
    std::vector<std::string> reports;
    /// Every rank had begun the same collectives and none was given up: all groups are as before.
    /// Else groups that come from split() refuse everything from now on (FailedPrecondition,
    /// GROUP_POISONED), and world groups are as new: their sequence goes on, nothing that was sent
    /// before arrives any more.
    bool in_step = false;
  };

  virtual ~FailureDomain() = default;
  /// Returns the number of recoveries so far.
  virtual std::uint64_t epoch() const = 0;
  /// Begins the next verb of a program that all ranks run alike. A failure ends waits of the same
  /// verb and of later ones: ranks that are behind finish earlier verbs, in which nobody has
  /// failed. Without verbs a failure ends all waits.
  virtual void begin_verb() = 0;
  /// This rank fails: `error` is kind and text. The first of an epoch is the one that all see.
  virtual void raise(const std::string& error) = 0;
  /// Serves waits that are no Work: moves all collectives of this rank as far as they go without
  /// waiting. Gives the failure once a rank has failed, and null before; then no collective touches
  /// this rank's buffers any more, and the wait is to end. Valid until recover().
  virtual const Failure* poll() = 0;
  /// Every rank calls it once per epoch in which a failure was raised; the others' waits end by
  /// it too. No buffer of an earlier collective is touched afterwards. Throws DeadlineExceeded
  /// if a rank does not come; the ranks are then lost to each other.
  virtual Recovery recover(const std::string& report) = 0;
  /// Sets what is called on the rank that raises, before it meets the others: to tell ranks that
  /// wait for nothing.
  virtual void on_raise(std::function<void(std::uint64_t epoch, const Failure&)> callback) = 0;
};

}  // namespace meshloom::comm
