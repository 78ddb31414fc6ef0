// SPDX-License-Identifier: Apache-2.0
// PulseSampler: heartbeats from the pulse of a training thread.
#pragma once

#include "daemon/comm/training_pulse.h"
#include "daemon/control/host/awake_clock.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Called by one thread, about every heartbeat period: times are as coarse as that. Time in which
/// this process did not run does not count.
class PulseSampler {
 public:
  explicit PulseSampler(const comm::TrainingPulse& pulse) : pulse_(pulse) {}

  v1::Heartbeat sample(AwakeClock::Clock::time_point now);

 private:
  const comm::TrainingPulse& pulse_;
  AwakeClock clock_;
  comm::TrainingPulse::Reading last_;
  AwakeClock::Duration moved_{};    ///< when `last_` was first seen to be so
  AwakeClock::Duration entered_{};  ///< when the transport's count of `last_` was first seen
};

}  // namespace meshloom::control
