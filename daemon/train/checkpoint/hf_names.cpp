// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/checkpoint/hf_names.h"

#include <initializer_list>
#include <string_view>

namespace meshloom::train {
namespace {

using nn::Architecture;

/// The part of the model that headless files hold without its name in front.
const char* base_prefix(Architecture architecture) {
  switch (architecture) {
    case Architecture::kGpt2: return "transformer.";
    case Architecture::kLlama: return "model.";
    case Architecture::kBert: return "bert.";
  }
  return "";
}

bool starts_with_any(const std::string& name, std::initializer_list<std::string_view> heads) {
  for (std::string_view head : heads)
    if (name.starts_with(head)) return true;
  return false;
}

bool is_headless(Architecture architecture, const std::string& name) {
  switch (architecture) {
    case Architecture::kGpt2: return starts_with_any(name, {"wte.", "wpe.", "h.", "ln_f."});
    case Architecture::kLlama: return starts_with_any(name, {"embed_tokens.", "layers.", "norm."});
    case Architecture::kBert: return starts_with_any(name, {"embeddings.", "encoder.", "pooler."});
  }
  return false;
}

void replace_end(std::string& name, std::string_view end, std::string_view replacement) {
  if (name.ends_with(end)) name.replace(name.size() - end.size(), end.size(), replacement);
}

}  // namespace

std::string hf_parameter_name(const nn::ModelConfig& config, const std::string& name) {
  std::string out =
      is_headless(config.architecture, name) ? base_prefix(config.architecture) + name : name;
  if (config.architecture == Architecture::kBert) {
    replace_end(out, "LayerNorm.gamma", "LayerNorm.weight");
    replace_end(out, "LayerNorm.beta", "LayerNorm.bias");
  }
  return out;
}

std::optional<std::string> hf_tied_parameter(const nn::ModelConfig& config,
                                             const std::string& name) {
  // BERT's output bias has two names whether the weight is tied or not.
  if (config.architecture == Architecture::kBert && name == "cls.predictions.decoder.bias")
    return "cls.predictions.bias";
  if (!config.tie_word_embeddings) return std::nullopt;
  switch (config.architecture) {
    case Architecture::kGpt2:
      if (name == "lm_head.weight") return "transformer.wte.weight";
      break;
    case Architecture::kLlama:
      if (name == "lm_head.weight") return "model.embed_tokens.weight";
      break;
    case Architecture::kBert:
      if (name == "cls.predictions.decoder.weight") return "bert.embeddings.word_embeddings.weight";
      break;
  }
  return std::nullopt;
}

bool hf_is_ignored(const nn::ModelConfig& config, const std::string& name) {
  switch (config.architecture) {
    case Architecture::kGpt2:
      return name.starts_with("transformer.h.") &&
             (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
    case Architecture::kLlama: return name.ends_with(".rotary_emb.inv_freq");
    case Architecture::kBert:
      return name == "bert.embeddings.position_ids" || name == "bert.embeddings.token_type_ids" ||
             starts_with_any(name, {"bert.pooler.", "cls.seq_relationship."});
  }
  return false;
}

bool hf_is_of_head(const nn::ModelConfig& config, const std::string& parameter) {
  return config.architecture == Architecture::kBert && parameter.starts_with("cls.");
}

}  // namespace meshloom::train
