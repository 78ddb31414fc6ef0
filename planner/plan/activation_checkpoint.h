// SPDX-License-Identifier: Apache-2.0
// What a block keeps for backward.
#pragma once

namespace meshloom::planner {

/// A block keeps all, the attention's output alone, or nothing but its input; in the order of what
/// they free.
enum class ActivationCheckpoint { kNone, kSelective, kFull };

}  // namespace meshloom::planner
