// SPDX-License-Identifier: Apache-2.0
// The micro batch of a job that gives none: a rank's share of the global batch, or an even part of
// it that was chosen to fit the memory.
#pragma once

#include <cstdint>

#include "v1/config.pb.h"

namespace meshloom::train {

/// Samples of the global batch that a rank of dp x fsdp has at most. Of a resolved config.
std::int64_t rank_share(const v1::RunConfig& resolved);

/// The choice of `before`, if it was less than a rank's share, becomes that of `config` as far as
/// it is less than a rank's share there, too. Both are resolved.
void keep_micro_batch(const v1::RunConfig& before, v1::RunConfig* config);

}  // namespace meshloom::train
