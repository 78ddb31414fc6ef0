// SPDX-License-Identifier: Apache-2.0
// Whether a run can go on from a checkpoint.
#pragma once

#include <string>

#include "daemon/nn/models/model_config.h"
#include "daemon/train/checkpoint/manifest.h"
#include "v1/config.pb.h"

namespace meshloom::train {

std::string to_json_text(const v1::RunConfig& config);
/// The other way round; keys that are not known are left out. False for text that is no config.
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

}  // namespace meshloom::train
