// SPDX-License-Identifier: Apache-2.0
// jobs/NAME/job.log: what became of a job, line by line, for people. Nothing is read back from it.
#pragma once

#include <filesystem>
#include <string>

#include "v1/job.pb.h"

namespace meshloom::control {

inline constexpr const char* kJobLog = "job.log";

/// Whether a line of a job's log has what the model has drawn.
bool is_sample_line(const std::string& line);

/// What an event that is told adds, with the time: states that it reaches and notes. Empty for
/// steps, which are in metrics.jsonl. `before`: the state that was told.
std::string job_log_lines(const v1::JobEvent& event, v1::JobState before);

/// Appends to the log in the job's folder, which is made where it is not there: all of the lines or
/// none. What cannot be written is in the daemon's log.
void append_job_log(const std::filesystem::path& folder, const std::string& lines);

}  // namespace meshloom::control
