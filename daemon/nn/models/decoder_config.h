// SPDX-License-Identifier: Apache-2.0
// The config.json of Llama and of its relatives.
#pragma once

#include "daemon/nn/models/json_reader.h"
#include "daemon/nn/models/model_config.h"

namespace meshloom::nn {

/// Everything of an Architecture::kLlama but what all architectures have (special tokens that are
/// given, initializer_range). Throws as parse_hf_config.
ModelConfig parse_decoder(const JsonReader& json, DecoderFamily family);

}  // namespace meshloom::nn
