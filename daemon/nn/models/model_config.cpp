// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/model_config.h"

#include <algorithm>

#include "daemon/base/strict_json.h"
#include "daemon/nn/models/architectures/architecture.h"
#include "daemon/nn/models/config_keys.h"
#include "kernels/base/error.h"
#include "planner/limits.h"

namespace meshloom::nn {
namespace {

/// The two keys say one thing: AutoModel goes by the type, others by the class.
void check_model_type(const JsonReader& json, const ArchitectureName& of_class) {
  const std::string type = json.string("model_type", of_class.model_type);
  if (type != of_class.model_type)
    json.fail("architectures",
              fmt::format("is [\"{}\"], whose model_type is '{}', and model_type is "
                          "'{}'",
                          of_class.class_name, of_class.model_type, type));
}

const ArchitectureName& parse_architecture(const JsonReader& json) {
  // An empty list says nothing.
  if (json.has("architectures") && json.at("architectures") != nlohmann::json::array()) {
    const nlohmann::json& list = json.at("architectures");
    if (!list.is_array() || list.size() != 1 || !list[0].is_string())
      json.fail("architectures", "is not a list of one name");
    const std::string name = list[0].get<std::string>();
    const ArchitectureName* found = find_class_name(name);
    if (found == nullptr) found = find_headless_class(name);
    if (found != nullptr) {
      check_model_type(json, *found);
      return *found;
    }
    json.refuse("architectures", fmt::format("is {}; {}", list.dump(), offered_classes()));
  }
  if (!json.has("model_type")) json.fail("architectures", "is missing");
  const std::string type = json.string("model_type", "");
  if (const ArchitectureName* found = find_model_type(type)) return *found;
  json.refuse("model_type", fmt::format("is '{}'; {}", type, offered_classes()));
}

void parse_eos(const JsonReader& json, ModelConfig& config) {
  if (!json.has("eos_token_id") || !json.at("eos_token_id").is_array()) {
    config.eos_token_id = json.token_id("eos_token_id", config.eos_token_id);
    return;
  }
  config.eos_token_id.reset();
  for (const nlohmann::json& id : json.at("eos_token_id")) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0)
      json.fail("eos_token_id", "is a list that holds something other than token ids");
    if (config.eos_token_id)
      config.more_eos_token_ids.push_back(id.get<std::int64_t>());
    else
      config.eos_token_id = id.get<std::int64_t>();
  }
}

void check_sizes(const JsonReader& json, const ModelConfig& config) {
  const HeadKeys keys = architecture_of(config.architecture).head_keys(json, config);
  const bool divided = !json.has("head_dim") && keys.divided;
  if (divided && config.hidden_size % config.num_heads != 0)
    json.fail(keys.hidden, fmt::format("{} is not a multiple of the {} heads", config.hidden_size,
                                       config.num_heads));
  if (config.head_dim * config.num_heads > planner::kMostChannels)
    json.fail(keys.heads, fmt::format("{} of {} channels are more than {} channels",
                                      config.num_heads, config.head_dim, planner::kMostChannels));
  if (config.num_kv_heads > config.num_heads || config.num_heads % config.num_kv_heads != 0)
    json.fail("num_key_value_heads", fmt::format("{} does not divide num_attention_heads {}",
                                                 config.num_kv_heads, config.num_heads));
  if (!(config.norm_eps >= 0.0)) json.fail("layer_norm_eps", "is negative");
  if (!(config.initializer_range >= 0.0)) json.fail("initializer_range", "is negative");
  if (config.pad_token_id && *config.pad_token_id >= config.vocab_size)
    json.fail("pad_token_id", fmt::format("{} is outside the vocabulary of {}",
                                          *config.pad_token_id, config.vocab_size));
}

/// A config has some hundred values, of labels some thousands.
nlohmann::json parse_model_json(const std::string& text) {
  try {
    return base::parse_strict_json(text);
  } catch (const Error& error) {
    throw InvalidArgument(fmt::format("config.json: {}", error.what()), "INVALID_MODEL_CONFIG");
  }
}

}  // namespace

bool ModelConfig::is_causal() const { return architecture_of(architecture).is_causal(); }

std::int64_t ModelConfig::context_length() const {
  if (!rope_scaling || rope_scaling->type == RopeType::kLlama3) return max_position_embeddings;
  const bool yarn = rope_scaling->type == RopeType::kYarn;
  const double trained = static_cast<double>(yarn ? rope_scaling->original_max_position_embeddings
                                                  : max_position_embeddings);
  const double stretched =
      std::min(rope_scaling->factor * trained, static_cast<double>(planner::kMostPositions));
  return std::max(max_position_embeddings, static_cast<std::int64_t>(stretched));
}

std::int64_t ModelConfig::longest_sequence() const {
  const bool endless = rope_scaling && rope_scaling->type != RopeType::kLlama3;
  return endless ? planner::kMostPositions : context_length();
}

std::int64_t ModelConfig::window_of(std::int64_t layer) const {
  const bool windowed =
      windowed_layers.empty() || windowed_layers.at(static_cast<std::size_t>(layer));
  return windowed ? sliding_window : 0;
}

std::int64_t ModelConfig::windowed_layer_count() const {
  if (sliding_window == 0) return 0;
  return windowed_layers.empty() ? num_layers
                                 : std::count(windowed_layers.begin(), windowed_layers.end(), true);
}

ModelConfig parse_hf_config(const std::string& text) {
  const nlohmann::json document = parse_model_json(text);
  if (!document.is_object())
    throw InvalidArgument("config.json: not a JSON object", "INVALID_MODEL_CONFIG");
  const JsonReader json(document);
  const ArchitectureName& name = parse_architecture(json);
  const ModelArchitecture& architecture = architecture_of(name.architecture);
  // Features of transformers' base class that would change what is computed.
  json.expect("quantization_config", nullptr);
  json.expect("add_cross_attention", false);
  json.expect("is_decoder", false);
  json.expect("is_encoder_decoder", false);
  json.expect("per_layer_config", nullptr);
  if (architecture.is_causal()) json.expect("is_causal", true);
  if (json.has("pruned_heads") && !json.at("pruned_heads").empty())
    json.refuse("pruned_heads", "is not empty; pruned heads are not supported");
  ModelConfig config = architecture.parse(json, name);
  config.initializer_range = json.given_number("initializer_range", 0.02);
  // The config holds the architecture's defaults.
  config.bos_token_id = json.token_id("bos_token_id", config.bos_token_id);
  config.pad_token_id = json.token_id("pad_token_id", config.pad_token_id);
  parse_eos(json, config);
  check_sizes(json, config);
  add_unread_keys(json, config);
  return config;
}

}  // namespace meshloom::nn
