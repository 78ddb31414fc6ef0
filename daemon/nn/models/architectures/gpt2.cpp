// SPDX-License-Identifier: Apache-2.0
// GPT-2 as config.json and Hugging Face files describe it.
#include "daemon/nn/models/gpt2.h"
#include "daemon/nn/models/architectures/architecture.h"
#include "daemon/nn/models/config_activation.h"
#include "planner/limits.h"

namespace meshloom::nn {
namespace {

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
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_size / config.num_heads;
  config.bos_token_id = config.eos_token_id = 50256;
  return config;
}

void write_gpt2(const ModelConfig& c, nlohmann::ordered_json& json) {
  json["activation_function"] = activation_name(c.activation);
  json["attn_pdrop"] = c.attention_dropout;
  json["embd_pdrop"] = c.embedding_dropout;
  json["resid_pdrop"] = c.residual_dropout;
  json["layer_norm_epsilon"] = c.norm_eps;
  json["n_embd"] = c.hidden_size;
  json["n_head"] = c.num_heads;
  json["n_inner"] = c.intermediate_size == 4 * c.hidden_size
                        ? nlohmann::ordered_json(nullptr)
                        : nlohmann::ordered_json(c.intermediate_size);
  json["n_layer"] = c.num_layers;
  json["n_positions"] = c.max_position_embeddings;
}

bool is_ignored_of_gpt2(const std::string& name) {
  return name.starts_with("transformer.h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

class Gpt2Architecture final : public ModelArchitecture {
 public:
  std::span<const ArchitectureName> names() const override {
    static constexpr std::array kNames{
        ArchitectureName{Architecture::kGpt2, DecoderFamily::kLlama, "gpt2", "GPT2LMHeadModel"}};
    return kNames;
  }
  bool is_causal() const override { return true; }

  ModelConfig parse(const JsonReader& json, const ArchitectureName&) const override {
    return parse_gpt2(json);
  }
  HeadKeys head_keys(const JsonReader& json, const ModelConfig&) const override {
    return {.hidden = json.either("n_embd", "hidden_size"),
            .heads = json.either("n_head", "num_attention_heads")};
  }
  void write(const ModelConfig& config, nlohmann::ordered_json& json) const override {
    write_gpt2(config, json);
  }

  std::int64_t parameters(const ModelConfig& c) const override {
    const std::int64_t hidden = c.hidden_size, inner = c.intermediate_size, vocab = c.vocab_size;
    const std::int64_t norm = 2 * hidden;
    const std::int64_t attention = hidden * 3 * hidden + 3 * hidden + hidden * hidden + hidden;
    const std::int64_t mlp = hidden * inner + inner + inner * hidden + hidden;
    return vocab * hidden + c.max_position_embeddings * hidden +
           c.num_layers * (attention + mlp + 2 * norm) + norm;
  }
  std::int64_t looked_up(const ModelConfig& c) const override {
    return c.max_position_embeddings * c.hidden_size;
  }

  const HfNameRules& hf_names() const override {
    static const HfNameRules rules{.base_prefix = "transformer.",
                                   .headless_begins = {"wte.", "wpe.", "h.", "ln_f."},
                                   .tied_weights = {"transformer.wte.weight", "lm_head.weight"},
                                   .is_ignored = is_ignored_of_gpt2};
    return rules;
  }
  void add_styles(StyleMaker& plan) const override {
    plan.vocabulary("transformer.wte");
    plan.positions("transformer.wpe");
    plan.positions("transformer.h.*.ln_[12]");
    plan.columns("transformer.h.*.attn.c_attn");
    plan.rows("transformer.h.*.attn.c_proj");
    plan.columns("transformer.h.*.mlp.c_fc");
    plan.rows("transformer.h.*.mlp.c_proj");
    plan.positions("transformer.ln_f");
    plan.output("lm_head");
  }
  std::unique_ptr<Model> make(ExecutionContext& context, const ModelConfig& config,
                              DType dtype) const override {
    return std::make_unique<Gpt2>(context, config, dtype);
  }
};

}  // namespace

const ModelArchitecture& gpt2_architecture() {
  static const Gpt2Architecture architecture;
  return architecture;
}

}  // namespace meshloom::nn
