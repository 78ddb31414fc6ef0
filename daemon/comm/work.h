// SPDX-License-Identifier: Apache-2.0
// Work: the handle of a collective in flight, a state machine that moves when it is polled.
#pragma once

#include <chrono>
#include <memory>

#include "kernels/base/stream.h"

namespace meshloom::comm {

using Clock = std::chrono::steady_clock;

/// A Work is issued by a ProcessGroup. No thread works behind it: data moves in poll() and the
/// waits. Buffers given to the collective stay untouched and alive until it is done. Used by the
/// rank's training thread alone.
class Work {
 public:
  virtual ~Work() = default;
  /// Moves what can be moved; true when done. Throws as wait_host does.
  virtual bool poll() = 0;
  /// Makes later work on `stream` wait for this collective. The host waits only for what it has to
  /// do itself: on the CPU the same as wait_host.
  virtual void enqueue_wait(Stream stream) = 0;
  /// Polls to the end, where results in host memory are there and those in device memory are there
  /// for later work on the group's stream. Throws DeadlineExceeded naming the collective, sequence
  /// number, group, rank and the peers that are missing; Aborted if the abort flag was raised. Both
  /// poison the group.
  virtual void wait_host() = 0;
};

using WorkPtr = std::unique_ptr<Work>;

}  // namespace meshloom::comm
