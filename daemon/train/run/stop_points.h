// SPDX-License-Identifier: Apache-2.0
// StopPoints: where a long call may be left, on all ranks together.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "daemon/comm/process_group.h"

namespace meshloom::train {

inline constexpr const char* kVerbStopped = "VERB_STOPPED";

/// The ranks meet before some micro batches of a call, about four times a second, where rank 0 says
/// whether they go on and which micro batch they meet before next: short calls cost nothing.
class StopPoints {
 public:
  using Stopped = std::function<bool(bool last)>;  ///< as RunOptions::stopped; on rank 0 alone
  StopPoints(comm::ProcessGroup& world, const Stopped& stopped, std::size_t micro_batches)
      : world_(world), stopped_(stopped), micro_batches_(micro_batches) {}

  /// Every rank calls it before each micro batch, from 0. Throws Cancelled (VERB_STOPPED), on all
  /// ranks alike.
  void before(std::size_t micro_batch);
  /// Is called on rank 0 behind the last micro batch. Throws the same, which the caller brings to
  /// all ranks.
  void check_last() const;

 private:
  using Clock = std::chrono::steady_clock;

  [[noreturn]] void leave(std::size_t computed) const;
  /// Returns how many micro batches there are up to the next meeting.
  double next_interval(std::size_t micro_batch);

  comm::ProcessGroup& world_;
  const Stopped& stopped_;
  const std::size_t micro_batches_;
  std::size_t next_ = 1, met_ = 0;
  Clock::time_point met_at_ = Clock::now();
};

}  // namespace meshloom::train
