// SPDX-License-Identifier: Apache-2.0
// Activations: what the layers keep for backward, and what is there beside it in passing.
#pragma once

#include <cstdint>

#include "kernels/base/device.h"
#include "kernels/base/dtype.h"
#include "planner/estimate/model_pass.h"
#include "planner/plan/activation_checkpoint.h"

namespace meshloom::planner {

/// ActivationEstimate counts bytes of activations.
struct ActivationEstimate {
  std::int64_t block = 0;          ///< kept of one layer until its backward
  std::int64_t boundary = 0;       ///< kept of one layer that is checkpointed
  std::int64_t behind_blocks = 0;  ///< there when backward has gone through all layers
  std::int64_t peak = 0;  ///< of all together with gradients in passing, over a micro batch
};

/// Estimates by a walk through the graph, forward and backward: every tensor lives as long as
/// forward holds it or backward needs it. The output loss is cut into pieces as kernels of `device`
/// do.
ActivationEstimate estimate_activations(const ModelPass& pass, ActivationCheckpoint checkpointing,
                                        DType dtype, DeviceKind device);

}  // namespace meshloom::planner
