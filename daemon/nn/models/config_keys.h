// SPDX-License-Identifier: Apache-2.0
// Which keys of a config.json nothing reads.
#pragma once

#include "daemon/nn/models/json_reader.h"
#include "daemon/nn/models/model_config.h"

namespace meshloom::nn {

/// Adds to unread_keys what `json` was not asked for and what is not known to change nothing: what
/// transformers' configs have beside the shape of a model, settings of generation, marks of tools.
/// To be called when all was read.
void add_unread_keys(const JsonReader& json, ModelConfig& config);

}  // namespace meshloom::nn
