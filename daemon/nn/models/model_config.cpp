// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/model_config.h"

#include <algorithm>

#include "daemon/base/strict_json.h"
#include "daemon/nn/models/architecture_names.h"
#include "daemon/nn/models/config_keys.h"
#include "daemon/nn/models/decoder_config.h"
#include "daemon/nn/models/json_reader.h"
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

ActivationKind parse_activation(const JsonReader& json, const char* key, const char* fallback) {
  const std::string name = json.string(key, fallback);
  if (name == "gelu") return ActivationKind::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return ActivationKind::kGeluTanh;
  if (name == "silu" || name == "swish") return ActivationKind::kSilu;
  if (name == "relu") return ActivationKind::kRelu;
  json.refuse(
      key,
      fmt::format("is '{}'; gelu, gelu_new, gelu_pytorch_tanh, silu and relu are supported", name));
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

/// A size that transformers takes by either name, the common one before GPT-2's own.
std::int64_t gpt2_size(const JsonReader& json, const char* own, const char* common,
                       std::int64_t fallback, std::int64_t most, ModelConfig& config) {
  const char* key = !json.has(own) && json.written(common) ? common : json.either(own, common);
  const std::int64_t size = json.size(key, fallback, most);
  if (key == common && json.has(own) && json.at(own) != json.at(common))
    config.notes.push_back(fmt::format("config.json: {} {} counts, not {} {}, as in transformers",
                                       common, size, own, json.at(own).dump()));
  return size;
}

ModelConfig parse_gpt2(const JsonReader& json) {
  json.expect("scale_attn_weights", true);
  json.expect("scale_attn_by_inverse_layer_idx", false);
  json.expect("reorder_and_upcast_attn", false);
  ModelConfig config;
  config.architecture = Architecture::kGpt2;
  config.vocab_size = json.size("vocab_size", 50257, planner::kMostVocabulary);
  config.hidden_size =
      gpt2_size(json, "n_embd", "hidden_size", 768, planner::kMostChannels, config);
  config.num_layers =
      gpt2_size(json, "n_layer", "num_hidden_layers", 12, planner::kMostLayers, config);
  config.num_heads =
      gpt2_size(json, "n_head", "num_attention_heads", 12, planner::kMostHeads, config);
  config.intermediate_size =
      json.size_or_null("n_inner", 4 * config.hidden_size, planner::kMostIntermediate);
  // n_ctx, the older name of the context, is not read by transformers either.
  config.max_position_embeddings = gpt2_size(json, "n_positions", "max_position_embeddings", 1024,
                                             planner::kMostPositions, config);
  config.activation = parse_activation(json, "activation_function", "gelu_new");
  config.norm_eps = json.given_number("layer_norm_epsilon", 1e-5);
  config.tie_word_embeddings = json.boolean("tie_word_embeddings", true);
  config.embedding_dropout = json.probability("embd_pdrop", 0.1);
  config.attention_dropout = json.probability("attn_pdrop", 0.1);
  config.residual_dropout = json.probability("resid_pdrop", 0.1);
  config.bos_token_id = config.eos_token_id = 50256;
  return config;
}

ModelConfig parse_bert(const JsonReader& json) {
  json.expect("position_embedding_type", "absolute");
  json.expect("embedding_size", nullptr);
  ModelConfig config;
  config.architecture = Architecture::kBert;
  config.vocab_size = json.size("vocab_size", 30522, planner::kMostVocabulary);
  config.hidden_size = json.size("hidden_size", 768, planner::kMostChannels);
  config.num_layers = json.size("num_hidden_layers", 12, planner::kMostLayers);
  config.num_heads = json.size("num_attention_heads", 12, planner::kMostHeads);
  config.intermediate_size = json.size("intermediate_size", 3072, planner::kMostIntermediate);
  config.max_position_embeddings =
      json.size("max_position_embeddings", 512, planner::kMostPositions);
  config.type_vocab_size = json.size("type_vocab_size", 2, planner::kMostTokenTypes);
  config.activation = parse_activation(json, "hidden_act", "gelu");
  config.norm_eps = json.given_number("layer_norm_eps", 1e-12);
  config.tie_word_embeddings = json.boolean("tie_word_embeddings", true);
  config.embedding_dropout = config.residual_dropout = json.probability("hidden_dropout_prob", 0.1);
  config.attention_dropout = json.probability("attention_probs_dropout_prob", 0.1);
  config.pad_token_id = 0;
  return config;
}

void check_sizes(const JsonReader& json, const ModelConfig& config) {
  const bool gpt2 = config.architecture == Architecture::kGpt2;
  const char* hidden = gpt2 ? json.either("n_embd", "hidden_size") : "hidden_size";
  const char* heads = gpt2 ? json.either("n_head", "num_attention_heads") : "num_attention_heads";
  // Qwen3's heads have a size of their own where none is given.
  const bool divided = !json.has("head_dim") && config.family != DecoderFamily::kQwen3;
  if (divided && config.hidden_size % config.num_heads != 0)
    json.fail(hidden, fmt::format("{} is not a multiple of the {} heads", config.hidden_size,
                                  config.num_heads));
  if (config.head_dim * config.num_heads > planner::kMostChannels)
    json.fail(heads, fmt::format("{} of {} channels are more than {} channels", config.num_heads,
                                 config.head_dim, planner::kMostChannels));
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
  const Architecture architecture = name.architecture;
  // Features of transformers' base class that would change what is computed.
  json.expect("quantization_config", nullptr);
  json.expect("add_cross_attention", false);
  json.expect("is_decoder", false);
  json.expect("is_encoder_decoder", false);
  json.expect("per_layer_config", nullptr);
  if (architecture != Architecture::kBert) json.expect("is_causal", true);
  if (json.has("pruned_heads") && !json.at("pruned_heads").empty())
    json.refuse("pruned_heads", "is not empty; pruned heads are not supported");
  ModelConfig config = architecture == Architecture::kGpt2    ? parse_gpt2(json)
                       : architecture == Architecture::kLlama ? parse_decoder(json, name.family)
                                                              : parse_bert(json);
  config.initializer_range = json.given_number("initializer_range", 0.02);
  // The config holds the architecture's defaults.
  config.bos_token_id = json.token_id("bos_token_id", config.bos_token_id);
  config.pad_token_id = json.token_id("pad_token_id", config.pad_token_id);
  parse_eos(json, config);
  if (architecture != Architecture::kLlama) {
    config.num_kv_heads = config.num_heads;
    config.head_dim = config.hidden_size / config.num_heads;
  }
  check_sizes(json, config);
  add_unread_keys(json, config);
  return config;
}

}  // namespace meshloom::nn
