// SPDX-License-Identifier: Apache-2.0
// Which model a config names: a preset, a config.json, a Hugging Face folder or a model of the
// daemon.
#pragma once

#include <filesystem>

#include "daemon/base/disk.h"
#include "daemon/nn/models/model_config.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// The architecture that exactly one of preset, config, hf_folder and name names, its dropout
/// replaced if given, with an output head (fresh_head). `model_folder` is the absolute folder of
/// the model that `name` names, with its config.json. Throws InvalidArgument or NotFound with the
/// field in the metadata.
nn::ModelConfig load_model_config(const v1::ModelSource&, const std::filesystem::path& data_dir,
                                  const std::filesystem::path& model_folder = {},
                                  base::Disk& disk = base::own_disk());

/// The Hugging Face folder whose weights training begins with; empty if it begins from scratch.
std::filesystem::path weights_folder(const v1::ModelSource&, const std::filesystem::path& data_dir,
                                     const std::filesystem::path& model_folder = {},
                                     base::Disk& disk = base::own_disk());

/// The folder that holds the model's other files, such as its tokenizer: of config, hf_folder or
/// name; empty for a preset.
std::filesystem::path source_folder(const v1::ModelSource&, const std::filesystem::path& data_dir,
                                    const std::filesystem::path& model_folder = {},
                                    base::Disk& disk = base::own_disk());

}  // namespace meshloom::train
