// SPDX-License-Identifier: Apache-2.0
// The text that a client's batch names: what decides about its tokens, before they are made.
#pragma once

#include <filesystem>

#include "daemon/nn/models/model_config.h"
#include "daemon/train/data/text_data.h"
#include "kernels/base/error.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// The section of a batch that names its data, in messages.
inline constexpr const char* kReferenceField = "reference.data";

/// Takes a config with the data of a reference alone; fills in and checks what a job's would be
/// (resolve_text) if they are text that is tokenized; else they stay as they are and it returns
/// false. `tokenizer` as in resolve_text. Throws with fields below "reference.data".
bool resolve_reference_text(v1::DataConfig& data, const nn::ModelConfig& model,
                            const std::filesystem::path& tokenizer,
                            const std::filesystem::path& data_dir);

/// Turns an error about the section `run.data` of a job into one for whoever sent a reference.
Error in_reference_terms(const Error& error);

}  // namespace meshloom::train
