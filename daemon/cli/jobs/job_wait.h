// SPDX-License-Identifier: Apache-2.0
// `job wait` waits until jobs have come to where somebody wants them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/cli/client.h"

namespace meshloom::cli {

struct WaitGoal {
  enum class Kind { kSucceeded, kEnded, kStep, kLoss };
  Kind kind = Kind::kSucceeded;
  std::int64_t step = 0;  ///< that is done
  double loss = 0;        ///< of a step of training, or less
};

/// Reads "succeeded", "ended", "step:N" or "loss:X". Throws CliError (kUsage).
WaitGoal parse_wait_goal(const std::string& text);

/// Whether a line of metrics.jsonl shows that a goal of steps or losses is reached.
bool line_reaches(const WaitGoal& goal, const std::string& line);

/// What becomes of the wait once the job has ended without having reached a goal of steps or losses
/// before: kOk, kFailed or kCancelled.
ExitCode end_reaches(const WaitGoal& goal, v1::JobState end);

struct WaitOptions {
  std::vector<std::string> jobs;
  WaitGoal goal = {};
  double timeout_seconds = 0;  ///< 0: as long as it takes
};

/// Waits for all of the jobs, over restarts of the daemon. kOk if all have reached the goal, else
/// what became of the first that cannot any more; kTimedOut if time is up.
ExitCode wait_for_jobs(Client& client, bool json, const WaitOptions& options);

}  // namespace meshloom::cli
