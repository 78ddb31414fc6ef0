// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/architecture_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

constexpr auto kPlain = DecoderFamily::kLlama;
constexpr std::array kNames = {
    ArchitectureName{Architecture::kGpt2, kPlain, "gpt2", "GPT2LMHeadModel"},
    ArchitectureName{Architecture::kLlama, kPlain, "llama", "LlamaForCausalLM"},
    ArchitectureName{Architecture::kLlama, DecoderFamily::kMistral, "mistral",
                     "MistralForCausalLM"},
    ArchitectureName{Architecture::kLlama, DecoderFamily::kQwen2, "qwen2", "Qwen2ForCausalLM"},
    ArchitectureName{Architecture::kLlama, DecoderFamily::kQwen3, "qwen3", "Qwen3ForCausalLM"},
    ArchitectureName{Architecture::kBert, kPlain, "bert", "BertForMaskedLM", "BertModel"},
};

template <typename Wanted>
const ArchitectureName* find(const Wanted& wanted) {
  const auto* found = std::find_if(kNames.begin(), kNames.end(), wanted);
  return found == kNames.end() ? nullptr : found;
}

}  // namespace

const ArchitectureName& architecture_name(const ModelConfig& config) {
  const DecoderFamily family = config.architecture == Architecture::kLlama ? config.family : kPlain;
  const ArchitectureName* found = find([&](const ArchitectureName& name) {
    return name.architecture == config.architecture && name.family == family;
  });
  check_internal(found != nullptr, "an architecture without a name");
  return *found;
}

const ArchitectureName* find_model_type(const std::string& name) {
  return find([&](const ArchitectureName& known) { return name == known.model_type; });
}

const ArchitectureName* find_class_name(const std::string& name) {
  return find([&](const ArchitectureName& known) { return name == known.class_name; });
}

const ArchitectureName* find_headless_class(const std::string& name) {
  return find([&](const ArchitectureName& known) {
    return known.headless_class != nullptr && name == known.headless_class;
  });
}

bool is_headless(const std::string& config_text) {
  const auto config = nlohmann::json::parse(config_text, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json classes =
      config.is_object() ? config.value("architectures", nlohmann::json()) : nlohmann::json();
  return classes.is_array() && classes.size() == 1 && classes[0].is_string() &&
         find_headless_class(classes[0].get<std::string>()) != nullptr;
}

std::string offered_classes() {
  std::vector<std::string> names;
  for (const ArchitectureName& known : kNames) names.emplace_back(known.class_name);
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("{} and {} are supported", fmt::join(names, ", "), last);
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const ArchitectureName& known : kNames) names.emplace_back(known.model_type);
  return names;
}

}  // namespace meshloom::nn
