// SPDX-License-Identifier: Apache-2.0
// RanksQueue: what one that waits for the ranks is told: behind whom, and for how long at most.
#pragma once

#include <string>
#include <vector>

#include "daemon/control/ranks/ranks_turn.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/stores/drain_store.h"
#include "daemon/control/stores/job_store.h"
#include "v1/wait.pb.h"

namespace meshloom::control {

/// Any thread may call any method; none waits for more than a mutex. What it refers to may
/// be made after it, and is looked at when it is asked.
class RanksQueue final : public RanksWaits {
 public:
  RanksQueue(const RanksTurn& turn, const JobStore& jobs, const RunManager& runs,
             const DrainStore& drain)
      : turn_(turn), jobs_(jobs), runs_(runs), drain_(drain) {}

  /// The name is "jobs/NAME", "runs/NAME" or "evaluations/N", and waits. A daemon that is drained
  /// gives a reason also where nothing comes before it.
  v1::RanksWait wait_of(const std::string& name) const override;
  /// Sets job->wait() of a job that waits.
  void tell(v1::Job* job) const;
  /// Of one that would come last.
  v1::RanksWait whole() const;

 private:
  std::vector<std::string> ahead_of(const std::string& name) const;
  v1::RanksWait wait_behind(const std::vector<std::string>& names) const;
  v1::WaitAhead describe(const std::string& name, bool has_ranks) const;

  const RanksTurn& turn_;
  const JobStore& jobs_;
  const RunManager& runs_;
  const DrainStore& drain_;
};

/// "3m05s", "58 s".
std::string wait_text(double seconds);

}  // namespace meshloom::control
