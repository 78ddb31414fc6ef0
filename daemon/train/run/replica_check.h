// SPDX-License-Identifier: Apache-2.0
// Compares the weights that several ranks hold.
#pragma once

#include <cstdint>

#include "daemon/train/run/model_state.h"

namespace meshloom::train {

/// Compares, bit for bit, the master weights of ranks that hold the same part of a parameter. Every
/// rank of the world calls it. Throws InternalError on every rank, naming the first parameter that
/// differs and the first rank that differs from the lowest one with the same part.
void check_replicas(ModelState& state, std::int64_t step);

}  // namespace meshloom::train
