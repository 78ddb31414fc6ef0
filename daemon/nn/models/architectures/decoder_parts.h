// SPDX-License-Identifier: Apache-2.0
// Facts that Llama's family and Gemma 3 share, whose modules have the same names (decoder.cpp).
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "daemon/nn/models/architectures/style_maker.h"
#include "daemon/nn/models/hf_name_rules.h"
#include "daemon/nn/models/json_reader.h"
#include "daemon/nn/models/model_config.h"

namespace meshloom::nn {

inline constexpr const char* kWholeAttention = "full_attention";
inline constexpr const char* kWindowedAttention = "sliding_attention";

/// Reads from layer_types, which is there, whether each layer has the window. Throws as
/// parse_hf_config.
std::vector<bool> parse_layer_types(const JsonReader& json, std::int64_t layers);
/// Makes the list that parse_layer_types reads.
nlohmann::ordered_json layer_types(const ModelConfig& config);

/// Counts the parameters as ModelArchitecture::parameters, with so many norms of hidden_size in
/// each layer.
std::int64_t decoder_parameters(const ModelConfig& config, std::int64_t norms_of_layer);
const HfNameRules& decoder_names();
void add_decoder_styles(StyleMaker& plan);

}  // namespace meshloom::nn
