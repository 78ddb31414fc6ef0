// SPDX-License-Identifier: Apache-2.0
// to_hf_config and to_hf_generation_config: the way back to config.json.
#include <nlohmann/json.hpp>

#include "daemon/nn/models/architecture_names.h"
#include "daemon/nn/models/model_config.h"
#include "daemon/nn/models/rope_config.h"
#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

using Json = nlohmann::ordered_json;

Json optional_id(const std::optional<std::int64_t>& id) { return id ? Json(*id) : Json(nullptr); }

Json eos_ids(const ModelConfig& config) {
  if (config.more_eos_token_ids.empty()) return optional_id(config.eos_token_id);
  Json list = Json::array({*config.eos_token_id});
  for (std::int64_t id : config.more_eos_token_ids) list.push_back(id);
  return list;
}

const char* activation_name(ActivationKind activation) {
  switch (activation) {
    case ActivationKind::kGelu: return "gelu";
    case ActivationKind::kGeluTanh: return "gelu_new";
    case ActivationKind::kSilu: return "silu";
    case ActivationKind::kRelu: return "relu";
  }
  throw InternalError("unknown activation");
}

void write_gpt2(const ModelConfig& c, Json& json) {
  json["activation_function"] = activation_name(c.activation);
  json["attn_pdrop"] = c.attention_dropout;
  json["embd_pdrop"] = c.embedding_dropout;
  json["resid_pdrop"] = c.residual_dropout;
  json["layer_norm_epsilon"] = c.norm_eps;
  json["n_embd"] = c.hidden_size;
  json["n_head"] = c.num_heads;
  json["n_inner"] =
      c.intermediate_size == 4 * c.hidden_size ? Json(nullptr) : Json(c.intermediate_size);
  json["n_layer"] = c.num_layers;
  json["n_positions"] = c.max_position_embeddings;
}

Json window_or_null(const ModelConfig& c) {
  return c.sliding_window > 0 ? Json(c.sliding_window) : Json(nullptr);
}

/// The layers are listed for transformers 5; 4 counts those before the first window.
void write_switched_window(const ModelConfig& c, Json& json) {
  Json types = Json::array();
  std::int64_t before = c.num_layers;
  for (std::int64_t i = c.num_layers - 1; i >= 0; --i)
    if (c.window_of(i) > 0) before = i;
  for (std::int64_t i = 0; i < c.num_layers; ++i)
    types.push_back(c.window_of(i) > 0 ? "sliding_attention" : "full_attention");
  json["layer_types"] = types;
  json["max_window_layers"] = before;
  json["sliding_window"] = window_or_null(c);
  json["use_sliding_window"] = c.sliding_window > 0;
}

void write_decoder(const ModelConfig& c, Json& json) {
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

void write_bert(const ModelConfig& c, Json& json) {
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

}  // namespace

std::string to_hf_config(const ModelConfig& config, DType dtype) {
  const ArchitectureName& name = architecture_name(config);
  Json json;
  json["architectures"] = {name.class_name};
  json["model_type"] = name.model_type;
  switch (config.architecture) {
    case Architecture::kGpt2: write_gpt2(config, json); break;
    case Architecture::kLlama: write_decoder(config, json); break;
    case Architecture::kBert: write_bert(config, json); break;
  }
  json["bos_token_id"] = optional_id(config.bos_token_id);
  json["dtype"] = dtype_name(dtype);
  json["eos_token_id"] = eos_ids(config);
  json["initializer_range"] = config.initializer_range;
  json["pad_token_id"] = optional_id(config.pad_token_id);
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["use_cache"] = true;
  json["vocab_size"] = config.vocab_size;
  return json.dump(2) + "\n";
}

std::string to_hf_generation_config(const ModelConfig& config) {
  Json json;
  json["_from_model_config"] = true;
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  if (config.eos_token_id) json["eos_token_id"] = eos_ids(config);
  if (config.pad_token_id) json["pad_token_id"] = *config.pad_token_id;
  return json.dump(2) + "\n";
}

}  // namespace meshloom::nn
