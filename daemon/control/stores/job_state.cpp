// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_state.h"

namespace meshloom::control {

bool is_final(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

bool can_move(v1::JobState from, v1::JobState to) {
  if (is_final(from)) return false;
  switch (to) {
    case v1::JOB_STATE_PREPARING:
      return from == v1::JOB_STATE_QUEUED || from == v1::JOB_STATE_RECOVERING;
    case v1::JOB_STATE_RUNNING:
      return from == v1::JOB_STATE_PREPARING || from == v1::JOB_STATE_PAUSED;
    case v1::JOB_STATE_PAUSED: return from == v1::JOB_STATE_RUNNING;
    case v1::JOB_STATE_RECOVERING:
      return from == v1::JOB_STATE_PREPARING || from == v1::JOB_STATE_RUNNING ||
             from == v1::JOB_STATE_PAUSED;
    case v1::JOB_STATE_HELD:
      return from == v1::JOB_STATE_QUEUED || from == v1::JOB_STATE_RECOVERING;
    case v1::JOB_STATE_CANCELLING: return from != v1::JOB_STATE_CANCELLING;
    case v1::JOB_STATE_CANCELLED: return true;
    // A job that was cancelled during its very last step has succeeded all the same.
    case v1::JOB_STATE_SUCCEEDED:
      return from == v1::JOB_STATE_RUNNING || from == v1::JOB_STATE_CANCELLING;
    case v1::JOB_STATE_FAILED: return true;
    default: return false;
  }
}

}  // namespace meshloom::control
