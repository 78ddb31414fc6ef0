// SPDX-License-Identifier: Apache-2.0
// The life of a job.
#pragma once

#include "v1/job.pb.h"

namespace meshloom::control {

/// SUCCEEDED, FAILED or CANCELLED.
bool is_final(v1::JobState state);

/// QUEUED -> PREPARING -> RUNNING -> SUCCEEDED | FAILED; CANCELLING -> CANCELLED from any that is
/// not final; RECOVERING -> PREPARING after a restart or a lost rank; HELD, from QUEUED or
/// RECOVERING, until a start with other ranks. PAUSED is kept for pause and resume.
bool can_move(v1::JobState from, v1::JobState to);

}  // namespace meshloom::control
