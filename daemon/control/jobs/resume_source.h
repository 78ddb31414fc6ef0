// SPDX-License-Identifier: Apache-2.0
// The checkpoint that a job begins with.
#pragma once

#include <filesystem>

#include "daemon/control/host/hold.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// Checks checkpoint.resume_from of a config that is resolved otherwise, and writes out which
/// checkpoint it is: "checkpoints/JOB" becomes that of the newest step. What `given` left open
/// becomes the checkpoint's (train::resolve_resume_from). Throws with the field
/// run.checkpoint.resume_from if there is none, its job goes on (its checkpoints are pruned), or it
/// is of another model or other data. Nobody deletes the checkpoint until the result is let go;
/// it holds nothing where no job has it.
Hold resolve_resume(const v1::RunConfig& given, v1::RunConfig* config, const JobStore& store,
                    const StateDir& state, const train::TokenizerSource& folders);

/// Whether, if that checkpoint is damaged, an older one of its job may take its place: only
/// if the user named the job and no step of it.
bool may_resume_older(const v1::Job& job);

/// The folder of the checkpoint that a resolved config names, not looked at; empty if it names
/// none.
std::filesystem::path resume_folder(const v1::RunConfig& resolved, const StateDir& state,
                                    const std::filesystem::path& data_dir);

}  // namespace meshloom::control
