// SPDX-License-Identifier: Apache-2.0
// Activations: what the layers keep for backward, and what is there beside it in passing.
#pragma once

#include <cstdint>

#include "planner/estimate/local_model.h"

namespace meshloom::planner {

/// Bytes of activations by where they are.
struct ActivationEstimate {
  std::int64_t block = 0;     ///< kept of one layer until its backward
  std::int64_t boundary = 0;  ///< kept of one layer that is checkpointed
  std::int64_t forward = 0;   ///< in passing, in a layer's forward
  std::int64_t backward = 0;  ///< in passing, in a layer's backward
  std::int64_t ends = 0;      ///< kept before the first and after the last layer
  std::int64_t loss = 0;      ///< in passing, in the loss: mostly chunks of logits
  std::int64_t peak = 0;      ///< of all together, over the step
};

ActivationEstimate estimate_activations(const LocalModel& local);

}  // namespace meshloom::planner
