// SPDX-License-Identifier: Apache-2.0
// Texts of config.json to begin with.
#pragma once

#include <nlohmann/json.hpp>

namespace meshloom::nn::config_json {

using Json = nlohmann::json;

inline Json gpt2_json() { return {{"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}}; }
inline Json llama_json() {
  return {{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}};
}
inline Json mistral_json() {
  return {{"architectures", {"MistralForCausalLM"}}, {"model_type", "mistral"}};
}
inline Json qwen2_json() {
  return {{"architectures", {"Qwen2ForCausalLM"}}, {"model_type", "qwen2"}};
}
inline Json qwen3_json() {
  return {{"architectures", {"Qwen3ForCausalLM"}}, {"model_type", "qwen3"}};
}
/// A Qwen of four layers whose window is switched on.
inline Json windowed(Json json) {
  json["use_sliding_window"] = true;
  json["num_hidden_layers"] = 4;
  return json;
}
inline Json bert_json() { return {{"architectures", {"BertForMaskedLM"}}, {"model_type", "bert"}}; }

inline Json with(Json json, const char* key, const Json& value) {
  json[key] = value;
  return json;
}

}  // namespace meshloom::nn::config_json
