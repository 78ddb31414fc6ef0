// SPDX-License-Identifier: Apache-2.0
// The model that a plan is for is read here: a preset, a config.json or a Hugging Face folder.
#pragma once

#include <string>

#include "planner/estimate/model_shape.h"

namespace meshloom::cli {

/// Throws CliError (kUsage) if there is no such preset or file, or if it is no supported config.
planner::ModelShape read_model_shape(const std::string& model);

}  // namespace meshloom::cli
