// SPDX-License-Identifier: Apache-2.0
// The rotary settings of a config.json: rope_parameters (transformers 5), or rope_scaling beside
// rope_theta (4).
#pragma once

#include <nlohmann/json.hpp>

#include "daemon/nn/models/json_reader.h"
#include "daemon/nn/models/model_config.h"

namespace meshloom::nn {

/// Reads the keys of RoPE into rope_theta, rope_scaling, unread_keys and notes of a config whose
/// sizes are there. Throws as parse_hf_config.
void parse_rope(const JsonReader& json, ModelConfig& config);
/// Both spellings, so that both versions read the same: 4 does not know rope_parameters.
void write_rope(const ModelConfig& config, nlohmann::ordered_json& json);

}  // namespace meshloom::nn
