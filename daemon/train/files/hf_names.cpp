// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/hf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "daemon/nn/models/architectures/architecture.h"

namespace meshloom::train {
namespace {

void replace_end(std::string& name, std::string_view end, std::string_view replacement) {
  if (name.ends_with(end)) name.replace(name.size() - end.size(), end.size(), replacement);
}

}  // namespace

const nn::HfNameRules& hf_name_rules(nn::Architecture architecture) {
  return nn::architecture_of(architecture).hf_names();
}

std::string hf_parameter_name(const nn::ModelConfig& config, const std::string& name) {
  const nn::HfNameRules& rules = hf_name_rules(config.architecture);
  const bool is_headless =
      std::any_of(rules.headless_begins.begin(), rules.headless_begins.end(),
                  [&](std::string_view begin) { return name.starts_with(begin); });
  std::string out = is_headless ? rules.base_prefix + name : name;
  for (const auto& [older, end] : rules.older_ends) replace_end(out, older, end);
  return out;
}

std::vector<std::string> hf_tensors_of(const nn::ModelConfig& config,
                                       const std::string& parameter) {
  const nn::HfNameRules& rules = hf_name_rules(config.architecture);
  if (const auto& bias = rules.tied_bias; bias && parameter == bias->parameter)
    return {bias->tied, bias->parameter};
  // A tied weight may be stored under its second name only.
  if (const nn::HfTiedNames& weights = rules.tied_weights;
      config.tie_word_embeddings && parameter == weights.parameter)
    return {weights.parameter, weights.tied};
  return {parameter};
}

bool hf_is_ignored(const nn::ModelConfig& config, const std::string& name) {
  return hf_name_rules(config.architecture).is_ignored(name);
}

bool hf_is_of_head(const nn::ModelConfig& config, const std::string& parameter) {
  const std::string& prefix = hf_name_rules(config.architecture).head_prefix;
  return !prefix.empty() && parameter.starts_with(prefix);
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
