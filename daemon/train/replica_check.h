// SPDX-License-Identifier: Apache-2.0
// Checks that ranks agree on what they hold in common.
#pragma once

#include <string>

#include "daemon/comm/process_group.h"
#include "daemon/train/model_state.h"

namespace meshloom::train {

/// Every rank of `world` calls it with what it takes the plan to be, as text (a resolved config, a
/// description of the sharding). Throws FailedPrecondition on every rank naming the ranks whose
/// text differs from rank 0's. `what` begins the message.
void check_same_text(comm::ProcessGroup& world, const std::string& what, const std::string& text);

/// Compares, bit for bit, the master weights of ranks that hold the same part of a parameter. Every
/// rank of the world calls it. Throws InternalError on every rank, naming the first parameter that
/// differs and the first rank that differs from the lowest one with the same part.
void check_replicas(ModelState& state, std::int64_t step);

}  // namespace meshloom::train
