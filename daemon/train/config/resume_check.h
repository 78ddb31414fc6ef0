// SPDX-License-Identifier: Apache-2.0
// Whether a run can go on from a checkpoint.
#pragma once

#include <filesystem>
#include <string>

#include "daemon/nn/models/model_config.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/files/model_source.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Returns the declared model as a run is of it that goes on from a checkpoint: where the weights
/// beside its config.json could untie it, as it was trained, whatever they say now.
nn::ModelConfig resumed_model(const DeclaredConfig& declared, const Manifest& checkpoint);

std::string to_json_text(const v1::RunConfig& config);
/// Reads what to_json_text writes; keys that are not known are left out. False for text that is no
/// config.
bool run_config_from_json(const std::string& text, v1::RunConfig* config);

/// Throws FailedPrecondition (CHECKPOINT_MISMATCH) that names the checkpoint as `label` and the
/// first key in which it is of another model (dropout may differ) or, if `optimizer` is given, of
/// another kind of optimizer.
void check_same_model(const Manifest& manifest, const nn::ModelConfig& model,
                      const v1::OptimizerConfig* optimizer, const std::string& label);

/// Throws FailedPrecondition (CHECKPOINT_MISMATCH) that names the checkpoint as `label` and the
/// first key in which it is of another model (dropout may differ), of other data or another seq_len
/// (its position counts samples of them), or of another optimizer. `config` is resolved; mesh,
/// plan, batch sizes, learning rates and seed may be others.
void check_resumable(const Manifest& manifest, const v1::RunConfig& config,
                     const nn::ModelConfig& model, const std::string& label);

/// Prepares a resolved config to go on from the checkpoint in `folder`: if `given` left the
/// dtype open, it becomes the checkpoint's, and so does the way in which keys travel between as
/// many ranks of cp, and data.add_special_tokens of a checkpoint that does not know it, so that a
/// job goes on in the numbers that it began with. Throws
/// InvalidArgument with the field run.checkpoint.resume_from if a run of the config cannot go on
/// from it, and with run.training.steps if it would have nothing left to do.
void resolve_resume_from(const v1::RunConfig& given, v1::RunConfig* resolved,
                         const std::filesystem::path& folder, const TokenizerSource& place);

}  // namespace meshloom::train
