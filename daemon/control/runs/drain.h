// SPDX-License-Identifier: Apache-2.0
// Drain: nothing new gets the ranks, and what has them lets go of them.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "daemon/control/ranks/ranks_turn.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/stores/drain_store.h"
#include "daemon/control/stores/job_store.h"
#include "v1/worker_service.pb.h"

namespace meshloom::control {

/// Any thread may call any method.
class Drain {
 public:
  /// A daemon that was drained is so again. Make it before anything asks for the ranks.
  Drain(DrainStore& store, RanksTurn& turn, JobStore& jobs, RunManager& runs);

  /// Durable when it returns. The job that has the ranks is paused, the run saved and closed;
  /// again, where one could not be saved the time before. Throws what refused the journal.
  void begin(const std::string& reason);
  /// The jobs that go on.
  std::vector<std::string> end();

  struct State {
    v1::DrainState state = v1::DRAIN_STATE_ACTIVE;
    std::string reason;
    std::string has_ranks;  ///< "jobs/NAME", "runs/NAME"; empty: nothing
  };
  State state() const;

 private:
  DrainStore& store_;
  RanksTurn& turn_;
  JobStore& jobs_;
  RunManager& runs_;
  std::mutex changing_;
};

}  // namespace meshloom::control
