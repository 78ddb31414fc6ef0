// SPDX-License-Identifier: Apache-2.0
// Which model a run is of, where that takes a look at weights or at a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/nn/models/model_config.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/run.h"

namespace meshloom::train {

/// Returns the model of a run before anything is built, the same on every rank of `world`, all of
/// which call it: that of the checkpoint that it begins with, else load_model_config's. Rank 0
/// alone looks at checkpoint and weights; its notes say what the user should know of that. What one
/// rank throws all throw.
nn::ModelConfig agree_on_model(comm::ProcessGroup& world, const v1::RunConfig& config,
                               const RunOptions& options, base::Disk& disk,
                               std::vector<std::string>& notes);

}  // namespace meshloom::train
