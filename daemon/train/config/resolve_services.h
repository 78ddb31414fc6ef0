// SPDX-License-Identifier: Apache-2.0
// What a job does beside its steps: defaults and checks of its config.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "daemon/text/tokenizer_cache.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in and checks validation, early stopping, watch, metrics, checkpoint and export. What may
/// be a mistake is added to `warnings`, which may be null.
void resolve_services(v1::RunConfig& config, std::vector<std::string>* warnings);

/// Throws if samples are to be drawn while a job trains and there is nothing to begin them with.
void check_sample_interval(const v1::SampleConfig& sample);

/// Fills in config.sample, which is given, and checks its prompts. `tokenizer` is the folder of the
/// model's tokenizer, or empty. Of config.data it is known whether they are chat (resolve_chat).
void resolve_sample(v1::RunConfig& config, const nn::ModelConfig& model,
                    const std::filesystem::path& tokenizer, const std::filesystem::path& data_dir,
                    text::TokenizerCache& opened);

/// Tells whether a job is saved after its last step: also where its config does not say.
inline bool saves_last(const v1::CheckpointConfig& checkpoint) {
  return !checkpoint.has_last() || checkpoint.last();
}

}  // namespace meshloom::train
