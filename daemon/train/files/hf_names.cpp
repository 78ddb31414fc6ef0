// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/hf_names.h"

#include <fmt/format.h>

#include <initializer_list>
#include <set>
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

HfTiedNames hf_tied_weights(Architecture architecture) {
  switch (architecture) {
    case Architecture::kGpt2: return {"transformer.wte.weight", "lm_head.weight"};
    case Architecture::kLlama: return {"model.embed_tokens.weight", "lm_head.weight"};
    case Architecture::kBert:
      return {"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"};
  }
  return {};
}

std::optional<HfTiedNames> hf_tied_bias(Architecture architecture) {
  if (architecture != Architecture::kBert) return std::nullopt;
  return HfTiedNames{"cls.predictions.bias", "cls.predictions.decoder.bias"};
}

std::vector<std::string> hf_tensors_of(const nn::ModelConfig& config,
                                       const std::string& parameter) {
  if (const auto bias = hf_tied_bias(config.architecture); bias && parameter == bias->parameter)
    return {bias->tied, bias->parameter};
  // A tied weight may be stored under its second name only.
  if (const HfTiedNames weights = hf_tied_weights(config.architecture);
      config.tie_word_embeddings && parameter == weights.parameter)
    return {weights.parameter, weights.tied};
  return {parameter};
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

std::string hf_wrapper_of(const nn::ModelConfig& config, const std::vector<std::string>& missing,
                          const std::vector<std::string>& unexpected) {
  const std::set<std::string> wanted(missing.begin(), missing.end());
  struct Wrapper {
    std::string part, maker;
  };
  for (const Wrapper& wrapper :
       {Wrapper{"_orig_mod.", "torch.compile"},
        Wrapper{"module.", "DataParallel or DistributedDataParallel"},
        Wrapper{"_fsdp_wrapped_module.", "FullyShardedDataParallel"},
        Wrapper{"_forward_module.", "a trainer's wrapper"}, Wrapper{"base_model.model.", "PEFT"}})
    for (const std::string& name : unexpected) {
      std::string inside = name;
      for (std::size_t at; (at = inside.find(wrapper.part)) != std::string::npos;)
        inside.erase(at, wrapper.part.size());
      if (inside != name && wanted.contains(hf_parameter_name(config, inside)))
        return fmt::format("\"{}\", which {} puts there", wrapper.part, wrapper.maker);
    }
  // Whatever stands before a whole name.
  for (const std::string& name : unexpected)
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      if (wanted.contains(hf_parameter_name(config, name.substr(dot + 1))))
        return fmt::format("\"{}\"", name.substr(0, dot + 1));
  return {};
}

}  // namespace meshloom::train
