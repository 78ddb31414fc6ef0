// SPDX-License-Identifier: Apache-2.0
// to_hf_config and to_hf_generation_config: the way back to config.json.
#include <nlohmann/json.hpp>

#include "daemon/nn/models/architectures/architecture.h"

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

}  // namespace

std::string to_hf_config(const ModelConfig& config, DType dtype) {
  const ArchitectureName& name = architecture_name(config);
  Json json;
  json["architectures"] = {name.class_name};
  json["model_type"] = name.model_type;
  architecture_of(config.architecture).write(config, json);
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
