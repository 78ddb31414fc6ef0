// SPDX-License-Identifier: Apache-2.0
// What of a job is in its checkpoints, as a message and as the training engine takes it.
#pragma once

#include "daemon/train/run.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// keep_latest_k and edited_config are left open.
inline v1::JobCheckpoint to_message(const train::JobProgress& progress) {
  v1::JobCheckpoint message;
  message.set_data_position(progress.data_position);
  message.set_tokens(progress.tokens);
  *message.mutable_validation() = progress.validation;
  return message;
}

inline train::JobProgress to_progress(const v1::JobCheckpoint& message) {
  train::JobProgress progress{message.data_position(), message.tokens(), message.validation(), {}};
  if (message.has_edited_config()) progress.edited_config = message.edited_config();
  return progress;
}

}  // namespace meshloom::control
