// SPDX-License-Identifier: Apache-2.0
// What a model's files are told from others by, and what their config says.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "v1/stored.pb.h"

namespace meshloom::control {

/// The files of a Hugging Face folder that decide about its weights (config.json, safetensors files
/// and their index), by name: size, XXH3-128 of the first and last MiB, and of the header of those
/// that hold tensors.
std::vector<v1::StoredModelFile> identify_files(const std::filesystem::path& folder);

/// Throws FailedPrecondition (DATA_CHANGED) naming what differs if the files that `model` was made
/// from are not those in `folder`.
void check_same_files(const v1::StoredModel& model, const std::filesystem::path& folder);

/// "gpt2", "llama" or "bert", the count of parameters with an output head, and whether it has one,
/// of the text of a config.json. Throws as nn::parse_hf_config; where there are no weights beside
/// it, InvalidArgument for a key that is not known, too.
void describe_config(const std::string& text, bool has_weights, v1::StoredModel* model);

}  // namespace meshloom::control
