// SPDX-License-Identifier: Apache-2.0
// BERT as config.json and Hugging Face files describe it.
#include "daemon/nn/models/bert.h"
#include "daemon/nn/models/architectures/architecture.h"
#include "daemon/nn/models/config_activation.h"
#include "planner/limits.h"

namespace meshloom::nn {
namespace {

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
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_size / config.num_heads;
  config.pad_token_id = 0;
  return config;
}

void write_bert(const ModelConfig& c, nlohmann::ordered_json& json) {
  json["attention_probs_dropout_prob"] = c.attention_dropout;
  json["hidden_act"] = activation_name(c.activation);
  json["hidden_dropout_prob"] = c.residual_dropout;
  json["hidden_size"] = c.hidden_size;
  json["intermediate_size"] = c.intermediate_size;
  json["layer_norm_eps"] = c.norm_eps;
  json["max_position_embeddings"] = c.max_position_embeddings;
  json["num_attention_heads"] = c.num_heads;
  json["num_hidden_layers"] = c.num_layers;
  json["type_vocab_size"] = c.type_vocab_size;
}

bool is_ignored_of_bert(const std::string& name) {
  return name == "bert.embeddings.position_ids" || name == "bert.embeddings.token_type_ids" ||
         name.starts_with("bert.pooler.") || name.starts_with("cls.seq_relationship.");
}

class BertArchitecture final : public ModelArchitecture {
 public:
  std::span<const ArchitectureName> names() const override {
    static constexpr std::array kNames{ArchitectureName{Architecture::kBert, DecoderFamily::kLlama,
                                                        "bert", "BertForMaskedLM", "BertModel"}};
    return kNames;
  }
  bool is_causal() const override { return false; }

  ModelConfig parse(const JsonReader& json, const ArchitectureName&) const override {
    return parse_bert(json);
  }
  void write(const ModelConfig& config, nlohmann::ordered_json& json) const override {
    write_bert(config, json);
  }

  std::int64_t parameters(const ModelConfig& c) const override {
    const std::int64_t hidden = c.hidden_size, inner = c.intermediate_size, vocab = c.vocab_size;
    const std::int64_t norm = 2 * hidden;
    const std::int64_t dense = hidden * hidden + hidden;
    const std::int64_t layer =
        4 * dense + hidden * inner + inner + inner * hidden + hidden + 2 * norm;
    const std::int64_t tables = (vocab + c.max_position_embeddings + c.type_vocab_size) * hidden;
    return tables + norm + c.num_layers * layer + dense + norm + vocab;
  }
  std::int64_t looked_up(const ModelConfig& c) const override {
    return (c.max_position_embeddings + c.type_vocab_size) * c.hidden_size;
  }

  const HfNameRules& hf_names() const override {
    static const HfNameRules rules{
        .base_prefix = "bert.",
        .headless_begins = {"embeddings.", "encoder.", "pooler."},
        .older_ends = {{"LayerNorm.gamma", "LayerNorm.weight"},
                       {"LayerNorm.beta", "LayerNorm.bias"}},
        .tied_weights = {"bert.embeddings.word_embeddings.weight",
                         "cls.predictions.decoder.weight"},
        .tied_bias = HfTiedNames{"cls.predictions.bias", "cls.predictions.decoder.bias"},
        .head_prefix = "cls.",
        .is_ignored = is_ignored_of_bert};
    return rules;
  }
  void add_styles(StyleMaker& plan) const override {
    plan.vocabulary("bert.embeddings.word_embeddings");
    plan.positions("bert.embeddings.position_embeddings");
    plan.positions("bert.embeddings.token_type_embeddings");
    plan.positions("bert.embeddings.LayerNorm");
    plan.gathered("bert.encoder.layer.*.attention.self");
    plan.inner_columns("bert.encoder.layer.*.attention.self.query");
    plan.inner_columns("bert.encoder.layer.*.attention.self.key");
    plan.inner_columns("bert.encoder.layer.*.attention.self.value");
    plan.rows("bert.encoder.layer.*.attention.output.dense");
    plan.positions("bert.encoder.layer.*.attention.output.LayerNorm");
    plan.columns("bert.encoder.layer.*.intermediate.dense");
    plan.rows("bert.encoder.layer.*.output.dense");
    plan.positions("bert.encoder.layer.*.output.LayerNorm");
    plan.positions("cls.predictions.transform.dense");
    plan.positions("cls.predictions.transform.LayerNorm");
    plan.output("cls.predictions");
  }
  std::unique_ptr<Model> make(ExecutionContext& context, const ModelConfig& config,
                              DType dtype) const override {
    return std::make_unique<Bert>(context, config, dtype);
  }
};

}  // namespace

const ModelArchitecture& bert_architecture() {
  static const BertArchitecture architecture;
  return architecture;
}

}  // namespace meshloom::nn
