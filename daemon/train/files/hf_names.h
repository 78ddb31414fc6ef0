// SPDX-License-Identifier: Apache-2.0
// How tensors in Hugging Face files are called, and which of them are no parameters.
//
// The models use the names that transformers writes today. Older files differ: they lack a prefix
// or call weights otherwise, and hold buffers, unused heads and second copies of tied weights
// (nn::HfNameRules has each architecture's rules).
#pragma once

#include <string>
#include <vector>

#include "daemon/nn/models/hf_name_rules.h"
#include "daemon/nn/models/model_config.h"

namespace meshloom::train {

/// Returns the parameter that a file's tensor `name` stands for. Unknown names come back as they
/// are.
std::string hf_parameter_name(const nn::ModelConfig& config, const std::string& name);

const nn::HfNameRules& hf_name_rules(nn::Architecture architecture);

/// Returns the tensors that may hold a parameter's values in a file of this config, most often one;
/// the first that is there counts.
std::vector<std::string> hf_tensors_of(const nn::ModelConfig& config, const std::string& parameter);

/// Tells whether a name is of the buffers that older versions stored and heads that the model does
/// not have: not read, not an error. `name` comes from hf_parameter_name.
bool hf_is_ignored(const nn::ModelConfig& config, const std::string& name);

/// Tells whether a name is of the parameters that the files of a config without a head
/// (nn::is_headless) do not hold.
bool hf_is_of_head(const nn::ModelConfig& config, const std::string& parameter);

/// Returns what stands before or inside the names of tensors that a wrapper has saved
/// ("_orig_mod.", "module.") and not the model itself, judged by the names that are missing and
/// those that are unexpected: empty, or such a part of a name and who makes it, for a message.
std::string hf_wrapper_of(const nn::ModelConfig& config, const std::vector<std::string>& missing,
                          const std::vector<std::string>& unexpected);

}  // namespace meshloom::train
