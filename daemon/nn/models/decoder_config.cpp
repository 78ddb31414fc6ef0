// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/decoder_config.h"

#include <algorithm>
#include <limits>

#include "daemon/nn/models/rope_config.h"
#include "kernels/base/error.h"
#include "planner/limits.h"

namespace meshloom::nn {
namespace {

/// What a missing key means in a family: transformers' defaults.
struct Family {
  std::int64_t vocab_size = 32000;
  std::int64_t intermediate_size = 11008;
  std::int64_t num_kv_heads = 0;  ///< 0: as many as there are heads
  std::int64_t head_dim = 0;      ///< 0: hidden_size / heads
  std::int64_t max_position_embeddings = 2048;
  std::optional<std::int64_t> bos_token_id = {}, eos_token_id = {};
};

Family defaults_of(DecoderFamily family) {
  switch (family) {
    case DecoderFamily::kLlama: return {.bos_token_id = 1, .eos_token_id = 2};
    case DecoderFamily::kMistral:
      return {.intermediate_size = 14336,
              .num_kv_heads = 8,
              .max_position_embeddings = 131072,
              .bos_token_id = 1,
              .eos_token_id = 2};
    case DecoderFamily::kQwen2:
    case DecoderFamily::kQwen3:
      return {.vocab_size = 151936,
              .intermediate_size = 22016,
              .num_kv_heads = 32,
              .head_dim = family == DecoderFamily::kQwen3 ? 128 : 0,
              .max_position_embeddings = 32768};
  }
  throw InternalError("unknown family of decoders");
}

/// The window that transformers takes where a config has one but does not say how large it is.
constexpr std::int64_t kDefaultWindow = 4096;

/// layer_types: whether each layer has the window.
std::vector<bool> parse_layer_types(const JsonReader& json, std::int64_t layers) {
  const nlohmann::json& types = json.at("layer_types");
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != layers)
    json.fail("layer_types", fmt::format("is not a list of num_hidden_layers ({}) names", layers));
  std::vector<bool> windowed;
  for (const nlohmann::json& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      json.refuse("layer_types", fmt::format("has {}; full_attention and sliding_attention are "
                                             "supported",
                                             type.dump()));
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

/// Which layers of a Qwen have the window, whose size is given even where it is switched off.
void parse_switched_window(const JsonReader& json, ModelConfig& config) {
  const bool wanted = json.boolean("use_sliding_window", false);
  const bool has_size = json.has("sliding_window") || !json.written("sliding_window");
  const std::int64_t size =
      json.size_or_null("sliding_window", kDefaultWindow, std::numeric_limits<std::int32_t>::max());
  const bool on = wanted && has_size;
  json.written("max_window_layers");  // known where it has no effect, too
  std::vector<bool> windowed(static_cast<std::size_t>(config.num_layers));
  if (json.has("layer_types")) {
    windowed = parse_layer_types(json, config.num_layers);
  } else if (on) {
    const auto first = static_cast<std::size_t>(json.count("max_window_layers", 28));
    for (std::size_t i = first; i < windowed.size(); ++i) windowed[i] = true;
  }
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) return;
  if (!on)
    json.fail("layer_types", wanted ? "has sliding_attention, but sliding_window is null"
                                    : "has sliding_attention, but use_sliding_window is not true");
  config.sliding_window = size;
  if (std::find(windowed.begin(), windowed.end(), false) != windowed.end())
    config.windowed_layers = std::move(windowed);
}

/// Mistral's layers all have the window, or none.
void parse_window_of_all(const JsonReader& json, ModelConfig& config) {
  if (json.has("sliding_window") || !json.written("sliding_window"))
    config.sliding_window = json.size("sliding_window", kDefaultWindow);
  if (!json.has("layer_types")) return;
  for (const bool windowed : parse_layer_types(json, config.num_layers))
    if (windowed != (config.sliding_window > 0))
      json.refuse(
          "layer_types",
          fmt::format("has {} where sliding_window is {}; all layers of a Mistral are alike",
                      windowed ? "sliding_attention" : "full_attention",
                      config.sliding_window > 0 ? "given" : "null"));
}

/// transformers' Llama takes the key for others' sake.
void ignore_window(const JsonReader& json, ModelConfig& config) {
  if (!json.has("sliding_window")) return;
  const nlohmann::json& window = json.at("sliding_window");
  if (window.is_number() && window > 0 && window < config.max_position_embeddings)
    config.notes.push_back(fmt::format(
        "config.json: sliding_window {} has no effect: a Llama has no windows", window.dump()));
}

void parse_switches(const JsonReader& json, ModelConfig& config) {
  switch (config.family) {
    case DecoderFamily::kLlama:
      ignore_window(json, config);
      config.attention_bias = config.attention_output_bias = json.boolean("attention_bias", false);
      config.mlp_bias = json.boolean("mlp_bias", false);
      return;
    case DecoderFamily::kMistral: parse_window_of_all(json, config); return;
    case DecoderFamily::kQwen2:
      config.attention_bias = true;
      parse_switched_window(json, config);
      return;
    case DecoderFamily::kQwen3:
      config.attention_bias = config.attention_output_bias = json.boolean("attention_bias", false);
      config.qk_norm = true;
      parse_switched_window(json, config);
      return;
  }
}

}  // namespace

ModelConfig parse_decoder(const JsonReader& json, DecoderFamily family) {
  const Family defaults = defaults_of(family);
  ModelConfig config;
  config.architecture = Architecture::kLlama;
  config.family = family;
  config.vocab_size = json.size("vocab_size", defaults.vocab_size, planner::kMostVocabulary);
  config.hidden_size = json.size("hidden_size", 4096, planner::kMostChannels);
  config.num_layers = json.size("num_hidden_layers", 32, planner::kMostLayers);
  config.num_heads = json.size("num_attention_heads", 32, planner::kMostHeads);
  // null stands for as many as there are heads in every family.
  const bool as_heads = defaults.num_kv_heads == 0 || json.written("num_key_value_heads");
  config.num_kv_heads =
      json.size_or_null("num_key_value_heads", as_heads ? config.num_heads : defaults.num_kv_heads,
                        planner::kMostHeads);
  const std::int64_t head_dim =
      defaults.head_dim > 0 ? defaults.head_dim : config.hidden_size / config.num_heads;
  config.head_dim = json.size_or_null("head_dim", head_dim, planner::kMostHeadDim);
  config.intermediate_size =
      json.size("intermediate_size", defaults.intermediate_size, planner::kMostIntermediate);
  config.max_position_embeddings = json.size(
      "max_position_embeddings", defaults.max_position_embeddings, planner::kMostPositions);
  const std::string activation = json.string("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    json.refuse("hidden_act", fmt::format("is '{}'; such a decoder has silu alone", activation));
  config.activation = ActivationKind::kSilu;
  config.norm_eps = json.given_number("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = json.boolean("tie_word_embeddings", false);
  config.attention_dropout = json.probability("attention_dropout", 0.0);
  config.bos_token_id = defaults.bos_token_id;
  config.eos_token_id = defaults.eos_token_id;
  parse_switches(json, config);
  parse_rope(json, config);
  if (config.head_dim % 2 != 0) json.fail("head_dim", "is odd: rotary embedding needs pairs");
  return config;
}

}  // namespace meshloom::nn
