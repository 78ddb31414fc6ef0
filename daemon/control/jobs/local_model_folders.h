// SPDX-License-Identifier: Apache-2.0
// LocalModelFolders: models of the data dir and of this daemon's store.
#pragma once

#include <filesystem>
#include <string>

#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/jobs/local_resources.h"
#include "daemon/control/jobs/model_folders.h"
#include "daemon/nn/models/model_config.h"

namespace meshloom::control {

/// Whoever is refused a removal is told that this holds the model, the checkpoint or the plan.
inline constexpr const char* kBeingMade = "a job or run that is being made";

/// Looks at files by `calls`, on a thread that may be left behind there, in what implements
/// ModelFolders and in model_config; the other methods do so on the calling thread. `resources` and
/// `calls` outlive it.
class LocalModelFolders final : public ModelFolders {
 public:
  LocalModelFolders(const LocalResources& resources, BoundedCalls& calls)
      : resources_(resources), calls_(calls) {}

  std::filesystem::path find_hf_folder(const std::string& name) override;
  std::filesystem::path model_folder(const v1::RunConfig& resolved) override;
  std::filesystem::path tokenizer_folder(const v1::RunConfig& resolved,
                                         const std::filesystem::path& model) override;
  Hold hold_models(const v1::RunConfig& config) override;
  /// The config of a model that a client names, its files looked at.
  nn::ModelConfig model_config(const v1::ModelSource& source);

  /// Does what model_folder does.
  std::filesystem::path find_model(const v1::ModelSource& source) const;
  /// Returns the folder of the model that run.data.tokenizer names; empty if it names none.
  std::filesystem::path find_tokenizer(const v1::RunConfig& config) const;
  /// Does what tokenizer_folder does.
  std::filesystem::path find_tokenizer_folder(const v1::RunConfig& resolved,
                                              const std::filesystem::path& model) const;
  nn::ModelConfig load_config(const v1::ModelSource& source) const;
  /// The same where run.model.name stands for the model in `folder`.
  nn::ModelConfig load_config(const v1::ModelSource& source,
                              const std::filesystem::path& folder) const;

 private:
  /// Keeps the model of this name, "models/NAME" or "NAME".
  Hold hold_model(const std::string& name) const;

  const LocalResources& resources_;
  BoundedCalls& calls_;
};

}  // namespace meshloom::control
