// SPDX-License-Identifier: Apache-2.0
// ModelFolders: where the models and tokenizers lie that requests name.
#pragma once

#include <filesystem>
#include <string>

#include "daemon/control/host/hold.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// Any thread may call any method; each may take as long as a file system does. Folders are
/// absolute.
class ModelFolders {
 public:
  virtual ~ModelFolders() = default;
  /// The path of a Hugging Face folder below the data dir.
  virtual std::filesystem::path find_hf_folder(const std::string& name) = 0;
  /// The folder of the model that a resolved config names by run.model.name, looked at; empty if it
  /// names none. Throws NotFound, FailedPrecondition (DATA_CHANGED).
  virtual std::filesystem::path model_folder(const v1::RunConfig& resolved) = 0;
  /// The folder whose tokenizer a resolved config means (train::tokenizer_folder), where
  /// run.model.name stands for the model in `model`.
  virtual std::filesystem::path tokenizer_folder(const v1::RunConfig& resolved,
                                                 const std::filesystem::path& model) = 0;
  /// Keeps the models of this daemon that a config names from being removed until the result is let
  /// go. Throws NotFound.
  virtual Hold hold_models(const v1::RunConfig& config) = 0;
};

}  // namespace meshloom::control
