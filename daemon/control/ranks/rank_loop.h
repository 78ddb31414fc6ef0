// SPDX-License-Identifier: Apache-2.0
// The loop of a rank's training thread.
#pragma once

#include <functional>

#include "daemon/comm/training_pulse.h"
#include "daemon/control/ranks/command_queue.h"
#include "daemon/control/ranks/rank_worker.h"

namespace meshloom::control {

enum class LoopEnd {
  kStopped,    ///< a stop command came
  kClosed,     ///< the queue was closed: the daemon has failed
  kOutOfStep,  ///< this rank failed in a way that leaves the ranks out of step
};

/// Takes commands, marks them in `pulse` if it is not null, and reports each result. Returns
/// only at the end.
LoopEnd run_commands(CommandQueue& queue, RankWorker& worker,
                     const std::function<void(const v1::RankResult&)>& report,
                     comm::TrainingPulse* pulse = nullptr);

}  // namespace meshloom::control
