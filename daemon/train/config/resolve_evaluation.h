// SPDX-License-Identifier: Apache-2.0
// The config of what is evaluated and not trained.
#pragma once

#include <filesystem>

#include "daemon/train/config/config_place.h"
#include "daemon/train/data/text_data.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Fills in every default of what a run without steps reads of a config: model, device, mesh, plan,
/// data and, of training, seq_len, global_batch_size and micro_batch_size; its steps become 0, and
/// it validates on what data.validation_path names, else on the end of data.path. A batch without
/// micro_batch_size is at most all samples, which are known of text with its tokens (`text`) alone.
/// Throws as resolve_run_config, by the fields of a RunConfig.
v1::RunConfig resolve_evaluation_config(const v1::RunConfig& given, const ConfigPlace& place,
                                        const TokenizedText& text);

}  // namespace meshloom::train
