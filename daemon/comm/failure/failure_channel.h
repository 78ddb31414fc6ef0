// SPDX-License-Identifier: Apache-2.0
// FailureChannel: how word of a failure travels between the ranks of a world, beside their groups.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/comm/failure.h"
#include "daemon/comm/work.h"

namespace meshloom::comm {

/// There is one per rank; used by its training thread. Over shared memory, or over MPI.
class FailureChannel {
 public:
  static constexpr std::size_t kLongestText = 1536;  ///< of a Failure; longer ones are shortened

  static constexpr std::uint64_t kAnyVerb = (std::uint64_t{1} << 40) - 1;

  virtual ~FailureChannel() = default;
  virtual int rank() const = 0;
  /// Tells whether a rank failed in `epoch`, in `verb` or before. Asked in every round of a wait
  /// that moved nothing.
  virtual bool raised(std::uint64_t epoch, std::uint64_t verb, Clock::time_point now) = 0;
  /// Returns the first failure of `epoch`, once raised() is true.
  virtual Failure first(std::uint64_t epoch) = 0;
  virtual void raise(std::uint64_t epoch, std::uint64_t verb, const std::string& text) = 0;

  /// Tells whether transfers that were cancelled may still touch their buffers.
  virtual bool has_leftovers() const = 0;
  /// Every rank calls it, with all of its transfers cancelled: on return none touches a buffer.
  virtual void quiesce() = 0;
  /// Waits a moment, without the other ranks, for receives that were given up. What is left then
  /// keeps this rank from calling MPI for its groups.
  virtual void let_receives_end() = 0;
  /// Every rank gives one string and gets everyone's. Throws DeadlineExceeded.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
  /// Is called between two exchanges, on every rank: forgets all that was sent.
  virtual void drain() = 0;

 protected:
  /// Grows with the epoch and, within one, with how early the verb is.
  static std::uint64_t urgency(std::uint64_t epoch, std::uint64_t verb) {
    return ((epoch + 1) << 40) | (kAnyVerb - verb);
  }
};

}  // namespace meshloom::comm
