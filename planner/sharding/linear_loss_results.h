// SPDX-License-Identifier: Apache-2.0
// What kLinearCrossEntropy gives: ints[0] of its attributes.
#pragma once

#include <cstdint>

namespace meshloom::planner {

enum LinearLossResults : std::int64_t {
  kLossSum = 0,      ///< [1], over all targets
  kWeightedSum = 1,  ///< [1], of losses times a fifth input of targets' shape; and the losses
  kTokenLosses = 2,  ///< of targets' shape, which may have one dim more than hidden has rows
};

}  // namespace meshloom::planner
