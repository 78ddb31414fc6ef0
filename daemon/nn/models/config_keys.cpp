// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/config_keys.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "daemon/base/nearest_name.h"
#include "daemon/nn/models/architecture_names.h"
#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

using std::string_view;

constexpr string_view kHarmless[] = {
    // Of every config of transformers 4 and 5.
    "architectures", "attn_implementation", "auto_map", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "custom_pipelines", "dtype", "experts_implementation",
    "finetuning_task", "gradient_checkpointing", "id2label", "label2id", "model_type",
    "name_or_path", "num_labels", "output_attentions", "output_hidden_states", "prefix",
    "problem_type", "return_dict", "task_specific_params", "tf_legacy_loss", "tie_encoder_decoder",
    "tie_last_hidden_states", "tokenizer_class", "torch_dtype", "torchscript",
    "transformers_version", "use_bfloat16", "use_cache",
    // Heads that are not built, and how they are regularised.
    "classifier_dropout", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "summary_activation",
    "summary_first_dropout", "summary_hidden_size", "summary_proj_to_labels", "summary_type",
    "summary_use_proj",
    // Of generation, which transformers once kept here.
    "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "length_penalty",
    "max_length", "max_new_tokens", "min_length", "min_new_tokens", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_scores",
    "remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "suppress_tokens",
    "temperature", "top_k", "top_p", "typical_p",
    // Of tools and older versions.
    "is_llama_config", "output_past", "predict_special_tokens", "pretraining_tp",
    "transformers.js_config", "use_return_dict", "xla_device"};

/// Features that nothing here has.
constexpr string_view kHarmlessIfFalse[] = {"rope_interleaved", "use_mrope"};

/// What one thing is called in the configs of one model or another.
constexpr string_view kMeanings[][8] = {
    {"hidden_size", "n_embd", "n_embed", "d_model", "dim", "embed_dim", "model_dim"},
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"},
    {"num_attention_heads", "n_head", "n_heads", "num_heads"},
    {"num_key_value_heads", "n_kv_heads", "num_kv_heads", "multi_query_group_num"},
    {"intermediate_size", "n_inner", "d_ff", "ffn_dim", "ffn_hidden_size", "hidden_dim"},
    {"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length",
     "seq_length", "context_length", "block_size"},
    {"vocab_size", "n_vocab", "padded_vocab_size"},
    {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon",
     "layernorm_epsilon"},
    {"hidden_act", "activation_function", "hidden_activation"},
    {"attention_dropout", "attn_pdrop", "attention_probs_dropout_prob"},
    {"resid_pdrop", "hidden_dropout_prob", "hidden_dropout"},
};

template <typename Names>
bool contains(const Names& names, string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// Of the keys that are read, those that mean the same.
std::vector<std::string> synonyms(const std::string& key, const std::vector<std::string>& known) {
  std::vector<std::string> found;
  for (const auto& names : kMeanings)
    if (contains(names, key))
      std::copy_if(known.begin(), known.end(), std::back_inserter(found),
                   [&](const std::string& name) { return contains(names, name); });
  return found;
}

/// Keys of one leading underscore are a library's own; ids of tokens that are no end decide
/// nothing.
bool is_harmless(const JsonReader& json, const std::string& key,
                 const std::vector<std::string>& same) {
  if (key.starts_with("_") || key.starts_with("unsloth_") || key.ends_with("_token_id") ||
      key.ends_with("_token_ids") || contains(kHarmless, key))
    return true;
  const nlohmann::json& value = json.at(key.c_str());
  if (value == false && contains(kHarmlessIfFalse, key)) return true;
  return std::any_of(same.begin(), same.end(), [&](const std::string& name) {
    return json.has(name.c_str()) && json.at(name.c_str()) == value;
  });
}

/// As a message shows it.
std::string printable(const std::string& key) {
  std::string text =
      nlohmann::json(key).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  text = text.substr(1, text.size() - 2);
  if (text.size() > 60) text.replace(60, std::string::npos, "...");
  return text;
}

/// "n_embd (hidden_size?)"
std::string shown(const UnreadKey& key) {
  return key.nearest.empty() ? key.name : fmt::format("{} ({}?)", key.name, key.nearest);
}

}  // namespace

void add_unread_keys(const JsonReader& json, ModelConfig& config) {
  const std::vector<std::string> known = json.asked();
  for (const std::string& key : json.not_asked()) {
    const std::vector<std::string> same = synonyms(key, known);
    if (is_harmless(json, key, same)) continue;
    const std::string nearest = same.empty() ? base::nearest_name(key, known) : same.front();
    config.unread_keys.push_back({json.prefix() + printable(key), nearest});
  }
}

std::vector<std::string> config_notes(const ModelConfig& config) {
  std::vector<std::string> notes = config.notes;
  if (config.unread_keys.empty()) return notes;
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  for (const UnreadKey& key : config.unread_keys) names.push_back(shown(key));
  const std::size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  notes.push_back(fmt::format("config.json: keys that are not known of {} and change nothing: {}{}",
                              architecture_name(config).class_name, fmt::join(names, ", "),
                              more > 0 ? fmt::format(" and {} more", more) : ""));
  return notes;
}

void refuse_unread_keys(const ModelConfig& config) {
  if (config.unread_keys.empty()) return;
  const UnreadKey& key = config.unread_keys.front();
  throw InvalidArgument(
      fmt::format("config.json: {} is no key of {}{}; without weights, whose shapes would speak, "
                  "every key must be known",
                  key.name, architecture_name(config).class_name,
                  key.nearest.empty() ? "" : fmt::format(" (did you mean {}?)", key.nearest)),
      "INVALID_MODEL_CONFIG", {{"key", key.name}});
}

}  // namespace meshloom::nn
