// SPDX-License-Identifier: Apache-2.0
// The model that a plan is for is read here: a preset, a config.json or a Hugging Face folder.
#pragma once

#include <string>

#include "daemon/nn/models/model_config.h"

namespace meshloom::cli {

/// Throws CliError (kUsage) if there is no such preset or file, or if it is no supported config.
nn::ModelConfig read_model_config(const std::string& model);

}  // namespace meshloom::cli
