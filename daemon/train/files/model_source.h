// SPDX-License-Identifier: Apache-2.0
// Which model a config names: a preset, a config.json, a Hugging Face folder or a model of the
// daemon.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/base/disk.h"
#include "daemon/nn/models/model_config.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// A config.json says this, before its weights are asked.
struct DeclaredConfig {
  nn::ModelConfig model;
  /// The weights that training begins with, where they may show that the output head is not tied
  /// to the embedding, as the model is declared to be; else empty.
  std::filesystem::path tied_weights;
};

/// Returns the architecture that exactly one of preset, config, hf_folder and name names, its
/// dropout replaced if given, with an output head (fresh_head). `model_folder` is the absolute
/// folder of the model that `name` names, with its config.json. Throws InvalidArgument or NotFound
/// with the field in the metadata.
DeclaredConfig load_declared_config(const v1::ModelSource&, const std::filesystem::path& data_dir,
                                    const std::filesystem::path& model_folder = {},
                                    base::Disk& disk = base::own_disk());

/// Loads the config that load_declared_config gives, but as the weights are
/// (HfFolder::model_config), which are read for it where they have both head and embedding; `notes`
/// gets what to say of that. Weights that cannot be opened say nothing: a run that has its
/// checkpoints goes on without them.
nn::ModelConfig load_model_config(const v1::ModelSource&, const std::filesystem::path& data_dir,
                                  const std::filesystem::path& model_folder = {},
                                  base::Disk& disk = base::own_disk(),
                                  std::vector<std::string>* notes = nullptr);

/// Throws, with the field in the metadata, unless the weights that training begins with, if there
/// are some, are those of the model: names, shapes and dtypes in the headers of their files
/// (check_hf_folder). For a source that load_model_config takes.
void check_source_weights(const v1::ModelSource&, const std::filesystem::path& data_dir,
                          const std::filesystem::path& model_folder = {});

/// Returns what the user should know of the config.json (nn::config_notes). Throws InvalidArgument
/// for a key that is not known where the model begins without weights, whose shapes would speak.
std::vector<std::string> check_config_keys(const v1::ModelSource&, const nn::ModelConfig&,
                                           const std::filesystem::path& data_dir,
                                           const std::filesystem::path& model_folder = {},
                                           base::Disk& disk = base::own_disk());

/// Returns the Hugging Face folder whose weights training begins with; empty if it begins from
/// scratch.
std::filesystem::path weights_folder(const v1::ModelSource&, const std::filesystem::path& data_dir,
                                     const std::filesystem::path& model_folder = {},
                                     base::Disk& disk = base::own_disk());

/// Returns the folder that holds the model's other files, such as its tokenizer: of config,
/// hf_folder or name; empty for a preset.
std::filesystem::path source_folder(const v1::ModelSource&, const std::filesystem::path& data_dir,
                                    const std::filesystem::path& model_folder = {},
                                    base::Disk& disk = base::own_disk());

}  // namespace meshloom::train
