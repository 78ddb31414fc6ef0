// SPDX-License-Identifier: Apache-2.0
// How tensors in Hugging Face files are called, and which of them are no parameters.
//
// The models use the names that transformers writes today. Older files differ: GPT-2's lack the
// "transformer." prefix, BERT's call a layer norm's weight and bias gamma and beta, and all of them
// may hold buffers, unused heads and second copies of tied weights.
#pragma once

#include <optional>
#include <string>

#include "daemon/nn/models/model_config.h"

namespace meshloom::train {

/// The parameter that a file's tensor `name` stands for. Unknown names come back as they are.
std::string hf_parameter_name(const nn::ModelConfig& config, const std::string& name);

/// For the second name of a tied weight: the parameter that it is a copy of.
std::optional<std::string> hf_tied_parameter(const nn::ModelConfig& config,
                                             const std::string& name);

/// Buffers that older versions stored and heads that the model does not have: not read, not an
/// error. `name` comes from hf_parameter_name.
bool hf_is_ignored(const nn::ModelConfig& config, const std::string& name);

/// Parameters that the files of a config without a head (nn::is_headless) do not hold.
bool hf_is_of_head(const nn::ModelConfig& config, const std::string& parameter);

}  // namespace meshloom::train
