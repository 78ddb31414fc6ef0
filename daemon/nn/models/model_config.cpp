// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "daemon/nn/models/architecture_names.h"
#include "daemon/nn/models/json_reader.h"
#include "kernels/base/error.h"
#include "planner/limits.h"

namespace meshloom::nn {
namespace {

constexpr std::array<std::pair<Architecture, const char*>, 3> kArchitectures = {
    {{Architecture::kGpt2, "GPT2LMHeadModel"},
     {Architecture::kLlama, "LlamaForCausalLM"},
     {Architecture::kBert, "BertForMaskedLM"}}};
constexpr std::array<std::pair<Architecture, const char*>, 3> kModelTypes = {
    {{Architecture::kGpt2, "gpt2"},
     {Architecture::kLlama, "llama"},
     {Architecture::kBert, "bert"}}};

Architecture parse_architecture(const JsonReader& json) {
  const auto named = [&](const auto& table,
                         const std::string& name) -> std::optional<Architecture> {
    for (const auto& [architecture, spelling] : table)
      if (name == spelling) return architecture;
    return std::nullopt;
  };
  constexpr const char* kOffered =
      "GPT2LMHeadModel, LlamaForCausalLM and BertForMaskedLM are supported";
  if (json.has("architectures")) {
    const nlohmann::json& list = json.at("architectures");
    if (!list.is_array() || list.size() != 1 || !list[0].is_string())
      json.fail("architectures", "is not a list of one name");
    const auto found = named(kArchitectures, list[0].get<std::string>());
    if (!found) json.refuse("architectures", fmt::format("is {}; {}", list.dump(), kOffered));
    return *found;
  }
  if (!json.has("model_type")) json.fail("architectures", "is missing");
  const auto found = named(kModelTypes, json.string("model_type", ""));
  if (!found)
    json.refuse("model_type", fmt::format("is '{}'; {}", json.string("model_type", ""), kOffered));
  return *found;
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

/// The config holds the architecture's defaults.
void parse_token_ids(const JsonReader& json, ModelConfig& config) {
  config.bos_token_id = json.token_id("bos_token_id", config.bos_token_id);
  config.pad_token_id = json.token_id("pad_token_id", config.pad_token_id);
  parse_eos(json, config);
}

/// Features of transformers' base class that would change what is computed.
void refuse_common(const JsonReader& json) {
  json.expect("quantization_config", nullptr);
  json.expect("add_cross_attention", false);
  json.expect("is_decoder", false);
  json.expect("is_encoder_decoder", false);
  if (json.has("pruned_heads") && !json.at("pruned_heads").empty())
    json.refuse("pruned_heads", "is not empty; pruned heads are not supported");
}

ModelConfig parse_gpt2(const JsonReader& json) {
  json.expect("scale_attn_weights", true);
  json.expect("scale_attn_by_inverse_layer_idx", false);
  json.expect("reorder_and_upcast_attn", false);
  ModelConfig config;
  config.architecture = Architecture::kGpt2;
  config.vocab_size = json.size("vocab_size", 50257, planner::kMostVocabulary);
  config.hidden_size = json.size("n_embd", 768, planner::kMostChannels);
  config.num_layers = json.size("n_layer", 12, planner::kMostLayers);
  config.num_heads = json.size("n_head", 12, planner::kMostHeads);
  config.intermediate_size =
      json.size("n_inner", 4 * config.hidden_size, planner::kMostIntermediate);
  // n_ctx is the older name; if both are given transformers reads n_positions.
  config.max_position_embeddings = json.size("n_positions", 1024, planner::kMostPositions);
  config.activation = parse_activation(json, "activation_function", "gelu_new");
  config.norm_eps = json.number("layer_norm_epsilon", 1e-5);
  config.tie_word_embeddings = json.boolean("tie_word_embeddings", true);
  config.embedding_dropout = json.probability("embd_pdrop", 0.1);
  config.attention_dropout = json.probability("attn_pdrop", 0.1);
  config.residual_dropout = json.probability("resid_pdrop", 0.1);
  config.bos_token_id = config.eos_token_id = 50256;
  return config;
}

/// One spelling of the rotary settings: rope_parameters (5), or rope_scaling beside rope_theta (4).
struct RopeSettings {
  double theta = 10000.0;
  std::optional<Llama3RopeScaling> scaling;
};

RopeSettings parse_rope_object(const JsonReader& json, const char* key, double theta) {
  const nlohmann::json& object = json.at(key);
  if (!object.is_object()) json.fail(key, "is not an object");
  const JsonReader rope(object, std::string(key) + ".");
  RopeSettings settings{.theta = rope.number("rope_theta", theta), .scaling = {}};
  rope.expect("partial_rotary_factor", 1.0);
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.string(type_key, "default");
  if (type == "default") return settings;
  if (type != "llama3")
    rope.refuse(type_key, fmt::format("is '{}'; default and llama3 are supported", type));
  for (const char* needed : {"factor", "low_freq_factor", "high_freq_factor"})
    if (!rope.has(needed)) rope.fail(needed, "is missing");
  Llama3RopeScaling scaling;
  scaling.factor = rope.number("factor", 0);
  scaling.low_freq_factor = rope.number("low_freq_factor", 0);
  scaling.high_freq_factor = rope.number("high_freq_factor", 0);
  scaling.original_max_position_embeddings = rope.required_size("original_max_position_embeddings");
  if (scaling.factor < 1.0) rope.fail("factor", "is less than 1");
  if (scaling.low_freq_factor <= 0.0) rope.fail("low_freq_factor", "is not positive");
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    rope.fail("high_freq_factor", "is not greater than low_freq_factor");
  settings.scaling = scaling;
  return settings;
}

bool same(const RopeSettings& a, const RopeSettings& b) {
  if (a.theta != b.theta || a.scaling.has_value() != b.scaling.has_value()) return false;
  if (!a.scaling) return true;
  return a.scaling->factor == b.scaling->factor &&
         a.scaling->low_freq_factor == b.scaling->low_freq_factor &&
         a.scaling->high_freq_factor == b.scaling->high_freq_factor &&
         a.scaling->original_max_position_embeddings == b.scaling->original_max_position_embeddings;
}

void parse_rope(const JsonReader& json, ModelConfig& config) {
  json.expect("partial_rotary_factor", 1.0);
  const double theta = json.number("rope_theta", 10000.0);
  RopeSettings settings{.theta = theta, .scaling = {}};
  if (json.has("rope_scaling")) settings = parse_rope_object(json, "rope_scaling", theta);
  if (json.has("rope_parameters")) {
    const RopeSettings newer = parse_rope_object(json, "rope_parameters", theta);
    if (json.has("rope_scaling") && !same(newer, settings))
      json.fail("rope_scaling", "and rope_parameters say different things");
    settings = newer;
  }
  if (!(settings.theta > 0.0)) json.fail("rope_theta", "is not positive");
  config.rope_theta = settings.theta;
  config.rope_scaling = settings.scaling;
}

ModelConfig parse_llama(const JsonReader& json) {
  json.expect("pretraining_tp", 1);
  json.expect("sliding_window", nullptr);
  ModelConfig config;
  config.architecture = Architecture::kLlama;
  config.vocab_size = json.size("vocab_size", 32000, planner::kMostVocabulary);
  config.hidden_size = json.size("hidden_size", 4096, planner::kMostChannels);
  config.num_layers = json.size("num_hidden_layers", 32, planner::kMostLayers);
  config.num_heads = json.size("num_attention_heads", 32, planner::kMostHeads);
  config.num_kv_heads = json.size("num_key_value_heads", config.num_heads, planner::kMostHeads);
  config.head_dim =
      json.size("head_dim", config.hidden_size / config.num_heads, planner::kMostHeadDim);
  config.intermediate_size = json.size("intermediate_size", 11008, planner::kMostIntermediate);
  config.max_position_embeddings =
      json.size("max_position_embeddings", 2048, planner::kMostPositions);
  config.activation = parse_activation(json, "hidden_act", "silu");
  if (config.activation != ActivationKind::kSilu)
    json.refuse("hidden_act", "is not silu, the only one supported for Llama");
  config.norm_eps = json.number("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = json.boolean("tie_word_embeddings", false);
  config.attention_bias = json.boolean("attention_bias", false);
  config.mlp_bias = json.boolean("mlp_bias", false);
  config.attention_dropout = json.probability("attention_dropout", 0.0);
  config.bos_token_id = 1;
  config.eos_token_id = 2;
  parse_rope(json, config);
  if (config.head_dim % 2 != 0) json.fail("head_dim", "is odd: rotary embedding needs pairs");
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
  config.norm_eps = json.number("layer_norm_eps", 1e-12);
  config.tie_word_embeddings = json.boolean("tie_word_embeddings", true);
  config.embedding_dropout = config.residual_dropout = json.probability("hidden_dropout_prob", 0.1);
  config.attention_dropout = json.probability("attention_probs_dropout_prob", 0.1);
  config.pad_token_id = 0;
  return config;
}

void check_sizes(const JsonReader& json, const ModelConfig& config) {
  const bool gpt2 = config.architecture == Architecture::kGpt2;
  const char* hidden = gpt2 ? "n_embd" : "hidden_size";
  if (config.head_dim * config.num_heads != config.hidden_size && !json.has("head_dim"))
    json.fail(hidden, fmt::format("{} is not a multiple of the {} heads", config.hidden_size,
                                  config.num_heads));
  if (config.head_dim * config.num_heads > planner::kMostChannels)
    json.fail(gpt2 ? "n_head" : "num_attention_heads",
              fmt::format("{} of {} channels are more than {} channels", config.num_heads,
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

}  // namespace

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const auto& [architecture, name] : kModelTypes) names.emplace_back(name);
  return names;
}

ModelConfig parse_hf_config(const std::string& text) {
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded())
    throw InvalidArgument("config.json: not valid JSON", "INVALID_MODEL_CONFIG");
  if (!document.is_object())
    throw InvalidArgument("config.json: not a JSON object", "INVALID_MODEL_CONFIG");
  const JsonReader json(document);
  const Architecture architecture = parse_architecture(json);
  refuse_common(json);
  ModelConfig config = architecture == Architecture::kGpt2    ? parse_gpt2(json)
                       : architecture == Architecture::kLlama ? parse_llama(json)
                                                              : parse_bert(json);
  config.initializer_range = json.number("initializer_range", 0.02);
  parse_token_ids(json, config);
  if (architecture != Architecture::kLlama) {
    config.num_kv_heads = config.num_heads;
    config.head_dim = config.hidden_size / config.num_heads;
  }
  check_sizes(json, config);
  return config;
}

}  // namespace meshloom::nn
