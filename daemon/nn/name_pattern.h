// SPDX-License-Identifier: Apache-2.0
// Patterns over the dotted names of modules and parameters: planner/name_pattern.h.
#pragma once

#include "planner/name_pattern.h"

namespace meshloom::nn {

using planner::best_pattern;
using planner::matches_pattern;
using planner::near_misses;
using planner::unmatched_text;

}  // namespace meshloom::nn
