// SPDX-License-Identifier: Apache-2.0
// The architectures that a config.json may have, and their names in it.
#pragma once

#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"

namespace meshloom::nn {

struct ArchitectureName {
  Architecture architecture;
  DecoderFamily family;                  ///< of kLlama; kLlama for the others
  const char* model_type;                ///< "qwen2"
  const char* class_name;                ///< of the model with its head, as `architectures` has it
  const char* headless_class = nullptr;  ///< of the same without; null: not offered
};

const ArchitectureName& architecture_name(const ModelConfig& config);
/// Returns the names of the architecture; nullptr: not offered.
const ArchitectureName* find_model_type(const std::string& name);
const ArchitectureName* find_class_name(const std::string& name);
const ArchitectureName* find_headless_class(const std::string& name);
/// Tells whether a config.json that parse_hf_config takes is of a class without an output head,
/// such as BertModel: neither have the files beside it then. The model that is made of it has one.
bool is_headless(const std::string& config_text);
/// Returns "GPT2LMHeadModel, ... and BertForMaskedLM are supported", for messages.
std::string offered_classes();

/// Returns the names of all architectures as `model_type` spells them: "gpt2", "llama", ...
std::vector<std::string> architecture_names();

}  // namespace meshloom::nn
