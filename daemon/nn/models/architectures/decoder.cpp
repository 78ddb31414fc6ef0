// SPDX-License-Identifier: Apache-2.0
// Llama and the decoders that differ from it in switches, as config.json and Hugging Face files
// describe them.
#include <algorithm>
#include <limits>

#include "daemon/nn/models/architectures/architecture.h"
#include "daemon/nn/models/architectures/decoder_parts.h"
#include "daemon/nn/models/config_activation.h"
#include "daemon/nn/models/llama.h"
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

nlohmann::ordered_json window_or_null(const ModelConfig& c) {
  return c.sliding_window > 0 ? nlohmann::ordered_json(c.sliding_window)
                              : nlohmann::ordered_json(nullptr);
}

/// The layers are listed for transformers 5; 4 counts those before the first window.
void write_switched_window(const ModelConfig& c, nlohmann::ordered_json& json) {
  std::int64_t before = c.num_layers;
  for (std::int64_t i = c.num_layers - 1; i >= 0; --i)
    if (c.window_of(i) > 0) before = i;
  json["layer_types"] = layer_types(c);
  json["max_window_layers"] = before;
  json["sliding_window"] = window_or_null(c);
  json["use_sliding_window"] = c.sliding_window > 0;
}

void write_decoder(const ModelConfig& c, nlohmann::ordered_json& json) {
  switch (c.family) {
    case DecoderFamily::kLlama: json["attention_bias"] = c.attention_bias; break;
    case DecoderFamily::kMistral: json["sliding_window"] = window_or_null(c); break;
    case DecoderFamily::kQwen2: write_switched_window(c, json); break;
    case DecoderFamily::kQwen3:
      json["attention_bias"] = c.attention_bias;
      write_switched_window(c, json);
      break;
  }
  json["attention_dropout"] = c.attention_dropout;
  json["head_dim"] = c.head_dim;
  json["hidden_act"] = activation_name(c.activation);
  json["hidden_size"] = c.hidden_size;
  json["intermediate_size"] = c.intermediate_size;
  json["max_position_embeddings"] = c.max_position_embeddings;
  if (c.family == DecoderFamily::kLlama) json["mlp_bias"] = c.mlp_bias;
  json["num_attention_heads"] = c.num_heads;
  json["num_hidden_layers"] = c.num_layers;
  json["num_key_value_heads"] = c.num_kv_heads;
  json["rms_norm_eps"] = c.norm_eps;
  write_rope(c, json);
}

bool is_ignored_of_decoders(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq");
}

class DecoderArchitecture final : public ModelArchitecture {
 public:
  std::span<const ArchitectureName> names() const override {
    using enum DecoderFamily;
    constexpr auto kId = Architecture::kLlama;
    static constexpr std::array kNames{
        ArchitectureName{kId, kLlama, "llama", "LlamaForCausalLM"},
        ArchitectureName{kId, kMistral, "mistral", "MistralForCausalLM"},
        ArchitectureName{kId, kQwen2, "qwen2", "Qwen2ForCausalLM"},
        ArchitectureName{kId, kQwen3, "qwen3", "Qwen3ForCausalLM"}};
    return kNames;
  }
  bool is_causal() const override { return true; }

  ModelConfig parse(const JsonReader& json, const ArchitectureName& name) const override {
    return parse_decoder(json, name.family);
  }
  HeadKeys head_keys(const JsonReader&, const ModelConfig& config) const override {
    return {.divided = defaults_of(config.family).head_dim == 0};
  }
  void write(const ModelConfig& config, nlohmann::ordered_json& json) const override {
    write_decoder(config, json);
  }

  std::int64_t parameters(const ModelConfig& c) const override { return decoder_parameters(c, 2); }

  const HfNameRules& hf_names() const override { return decoder_names(); }
  void add_styles(StyleMaker& plan) const override { add_decoder_styles(plan); }
  std::unique_ptr<Model> make(ExecutionContext& context, const ModelConfig& config,
                              DType dtype) const override {
    return std::make_unique<Llama>(context, config, dtype);
  }
};

}  // namespace

std::vector<bool> parse_layer_types(const JsonReader& json, std::int64_t layers) {
  const nlohmann::json& types = json.at("layer_types");
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != layers)
    json.fail("layer_types", fmt::format("is not a list of num_hidden_layers ({}) names", layers));
  std::vector<bool> windowed;
  for (const nlohmann::json& type : types) {
    if (type != kWholeAttention && type != kWindowedAttention)
      json.refuse("layer_types", fmt::format("has {}; full_attention and sliding_attention are "
                                             "supported",
                                             type.dump()));
    windowed.push_back(type == kWindowedAttention);
  }
  return windowed;
}

nlohmann::ordered_json layer_types(const ModelConfig& c) {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < c.num_layers; ++i)
    types.push_back(c.window_of(i) > 0 ? kWindowedAttention : kWholeAttention);
  return types;
}

std::int64_t decoder_parameters(const ModelConfig& c, std::int64_t norms_of_layer) {
  const std::int64_t hidden = c.hidden_size, inner = c.intermediate_size, vocab = c.vocab_size;
  const std::int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  const std::int64_t attention =
      hidden * (q + 2 * kv) + q * hidden + (c.attention_bias ? q + 2 * kv : 0) +
      (c.attention_output_bias ? hidden : 0) + (c.qk_norm ? 2 * c.head_dim : 0);
  const std::int64_t mlp = 3 * hidden * inner + (c.mlp_bias ? 2 * inner + hidden : 0);
  return vocab * hidden + c.num_layers * (attention + mlp + norms_of_layer * hidden) + hidden;
}

const HfNameRules& decoder_names() {
  static const HfNameRules rules{.base_prefix = "model.",
                                 .headless_begins = {"embed_tokens.", "layers.", "norm."},
                                 .tied_weights = {"model.embed_tokens.weight", "lm_head.weight"},
                                 .is_ignored = is_ignored_of_decoders};
  return rules;
}

void add_decoder_styles(StyleMaker& plan) {
  plan.vocabulary("model.embed_tokens");
  plan.positions("model.layers.*.input_layernorm");
  plan.gathered("model.layers.*.self_attn");
  plan.inner_columns("model.layers.*.self_attn.[qkv]_proj");
  plan.rows("model.layers.*.self_attn.o_proj");
  plan.positions("model.layers.*.post_attention_layernorm");
  plan.gathered("model.layers.*.mlp");
  plan.inner_columns("model.layers.*.mlp.gate_proj");
  plan.inner_columns("model.layers.*.mlp.up_proj");
  plan.rows("model.layers.*.mlp.down_proj");
  plan.positions("model.norm");
  plan.output("lm_head");
}

const ModelArchitecture& decoder_architecture() {
  static const DecoderArchitecture architecture;
  return architecture;
}

}  // namespace meshloom::nn
