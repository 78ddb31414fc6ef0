// SPDX-License-Identifier: Apache-2.0
// Tokenization: text of configs and batches as tokens, and what a model can continue.
#pragma once

#include <filesystem>

#include "daemon/train/config/sampling_params.h"
#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"
#include "v1/step.pb.h"

namespace meshloom::control {

/// Any thread may call any method.
class Tokenization {
 public:
  virtual ~Tokenization() = default;
  /// The tokens of the config's text by the tokenizer in `tokenizer`, made if they are not there
  /// (train::tokenize_text), for the model in `model` where run.model.name stands for one. Takes as
  /// long as there is text; what `progress` throws ends it.
  virtual train::TokenizedText tokenize(const v1::RunConfig& resolved,
                                        const std::filesystem::path& model,
                                        const std::filesystem::path& tokenizer,
                                        const train::TextProgress& progress) = 0;
  /// The same for the text that a batch of a run names, whose section `data` is then filled in as a
  /// job's would be; nothing for other data. Throws with fields below "reference.data".
  virtual train::TokenizedText tokenize_reference(const v1::RunConfig& resolved,
                                                  v1::DataReference* reference,
                                                  const train::TextProgress& progress) = 0;
  /// What the model of a resolved config can continue, with its tokenizer.
  virtual train::PromptLimits prompt_limits(const v1::RunConfig& resolved) = 0;
};

}  // namespace meshloom::control
