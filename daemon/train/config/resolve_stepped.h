// SPDX-License-Identifier: Apache-2.0
// The config of a run that a client drives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/train/config/config_place.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// micro_batch_size of a run that gives none: as many of the longest data as hold so many tokens.
inline constexpr std::int64_t kMicroBatchTokens = 8192;

/// Fills in every default of what such a run reads of a config (model, device, mesh, plan,
/// optimizer, training.seed, .seq_len: the longest datum, .micro_batch_size, and .max_norm: the
/// grad_clip_norm of steps that give none, default 0: sums have no scale to be clipped at) and
/// checks it against world_size. Sections that only a job reads
/// (data, lr_scheduler, validation, checkpoint, export, sample) and training.steps,
/// .global_batch_size and .peak_flops are refused by name if they are given. Throws as
/// resolve_run_config.
v1::RunConfig resolve_stepped_config(const v1::RunConfig& given, const ConfigPlace& place,
                                     std::vector<std::string>* warnings = nullptr);

}  // namespace meshloom::train
