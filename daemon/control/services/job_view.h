// SPDX-License-Identifier: Apache-2.0
// What of a job, a model or a plan is told to whom.
#pragma once

#include "daemon/control/access/identity.h"
#include "v1/job.pb.h"

namespace meshloom::control {

/// Takes out what is its owner's alone: what the model has drawn; and of those who only look, where
/// the job's files lie and with whom else it is shared.
inline void hide_from(const Identity& who, v1::Job* job) {
  if (job->owner() == who.owner()) return;
  job->clear_sample();
  job->clear_samples();
  if (who.is_admin()) return;
  job->clear_output_dir();
  job->clear_hf_folder();
  job->clear_shared_with();
}

/// Takes out of a model or a plan with whom it is shared: its owner knows, and admins do.
template <typename Message>
void hide_shares(const Identity& who, Message* message) {
  if (message->owner() != who.owner() && !who.is_admin()) message->clear_shared_with();
}

}  // namespace meshloom::control
