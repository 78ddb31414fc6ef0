// SPDX-License-Identifier: Apache-2.0
// --follow and job watch show a job's events until it ends.
#pragma once

#include <string>

#include "daemon/cli/client.h"
#include "daemon/cli/output/output.h"

namespace meshloom::cli {

struct FollowOptions {
  bool json = false;  ///< every event as a line of JSON
  JobStyle style = {};
  bool notify = false;  ///< rings the terminal's bell when the job has ended or is held
};

/// Returns what a terminal is sent to tell of a job's state: its bell, and a notice for those that
/// show one on the desktop (OSC 9).
std::string notice_of(const v1::Job& job);

/// Shows what a job trains (job_facts.h), then its events until it ends; its end is the exit code.
/// Ctrl-C leaves the job alone, says how to cancel it, and is 130.
ExitCode follow_job(Client& client, const std::string& job, const FollowOptions& options);

}  // namespace meshloom::cli
