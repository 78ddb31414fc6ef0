// SPDX-License-Identifier: Apache-2.0
// The model configs of configs/models, compiled in so that no install path is needed.
#pragma once

#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"

namespace meshloom::nn {

/// Returns the names, sorted: "bert_base", "byte_gpt_10m", "gpt2_124m", ...
std::vector<std::string> preset_names();
/// Returns the text of configs/models/NAME.json. Throws NotFound that lists the names.
const std::string& preset_text(const std::string& name);
/// Returns the config that preset_text spells, and throws as that does.
ModelConfig preset_config(const std::string& name);

}  // namespace meshloom::nn
