// SPDX-License-Identifier: Apache-2.0
// Which model a config names: a preset, a config.json or a Hugging Face folder.
#pragma once

#include <filesystem>

#include "daemon/nn/models/model_config.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// The architecture that exactly one of preset, config and hf_folder names, its dropout replaced
/// if given. Throws InvalidArgument or NotFound with the field in the metadata.
nn::ModelConfig load_model_config(const v1::ModelSource&, const std::filesystem::path& data_dir);
/// The same of the Hugging Face folder at `folder`, which is named in place of the three. Throws
/// InvalidArgument if one of them is given too.
nn::ModelConfig load_folder_config(const v1::ModelSource&, const std::filesystem::path& folder);

}  // namespace meshloom::train
