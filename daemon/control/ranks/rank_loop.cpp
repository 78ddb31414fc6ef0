// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_loop.h"

#include "kernels/base/log.h"

namespace meshloom::control {

LoopEnd run_commands(CommandQueue& queue, RankWorker& worker,
                     const std::function<void(const v1::RankResult&)>& report,
                     comm::TrainingPulse* pulse) {
  while (const auto command = queue.pop()) {
    if (command->has_stop()) return LoopEnd::kStopped;
    if (command->has_abort()) return LoopEnd::kClosed;
    if (pulse != nullptr) pulse->begin_command(command->seq());
    const v1::RankResult result = worker.execute(*command);
    if (pulse != nullptr) pulse->end_command();
    report(result);
    if (result.error_scope() == v1::ERROR_SCOPE_RANKS) {
      spdlog::error("command seq {}: {}", result.seq(), result.error().message());
      return LoopEnd::kOutOfStep;
    }
  }
  return LoopEnd::kClosed;
}

}  // namespace meshloom::control
