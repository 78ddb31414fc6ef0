// SPDX-License-Identifier: Apache-2.0
// LocalTokenization: tokens by the tokenizers of this daemon's models, kept in the state dir.
#pragma once

#include <filesystem>

#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/jobs/local_model_folders.h"
#include "daemon/control/jobs/tokenization.h"
#include "daemon/control/stores/state_dir.h"
#include "daemon/text/tokenizer_cache.h"

namespace meshloom::control {

/// Files of tokens lie in StateDir::tokens. What it is made of outlives it.
class LocalTokenization final : public Tokenization {
 public:
  LocalTokenization(const StateDir& state, const LocalResources& resources,
                    LocalModelFolders& folders, BoundedCalls& calls)
      : state_(state), resources_(resources), folders_(folders), calls_(calls) {}

  train::TokenizedText tokenize(const v1::RunConfig& resolved, const std::filesystem::path& model,
                                const std::filesystem::path& tokenizer,
                                const train::TextProgress& progress) override;
  train::TokenizedText tokenize_reference(const v1::RunConfig& resolved,
                                          v1::DataReference* reference,
                                          const train::TextProgress& progress) override;
  train::PromptLimits prompt_limits(const v1::RunConfig& resolved) override;

 private:
  const StateDir& state_;
  const LocalResources& resources_;
  LocalModelFolders& folders_;
  BoundedCalls& calls_;
  text::TokenizerCache tokenizers_;
};

}  // namespace meshloom::control
