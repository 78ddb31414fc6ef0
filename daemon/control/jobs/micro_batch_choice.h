// SPDX-License-Identifier: Apache-2.0
// The micro batch that fits the memory, for jobs that leave it open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/nn/models/model_config.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// Replaces the micro batch of a resolved config, which is a rank's whole share of the global
/// batch, by the largest even part of that share whose estimate (daemon/plan/job_memory.h) is at
/// most `rank_bytes`; by 1 if none is. Nothing changes if the whole share fits, or `rank_bytes` is
/// 0: not known. Returns what was chosen and why, as a note to the user; nothing if nothing has
/// changed.
std::optional<std::string> choose_micro_batch(v1::RunConfig* resolved, const nn::ModelConfig& model,
                                              std::int64_t rank_bytes);

}  // namespace meshloom::control
