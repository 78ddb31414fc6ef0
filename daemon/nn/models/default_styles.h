// SPDX-License-Identifier: Apache-2.0
// The styles that each architecture is spread with unless a plan says otherwise.
#pragma once

#include "daemon/nn/models/model_config.h"
#include "planner/plan/style.h"

namespace meshloom::nn {

/// Returns the styles for a mesh of one dim. Activations keep their layouts between modules.
/// Attention and the feed-forward part are sharded by heads and features; embedding, output
/// projection and loss by vocabulary. With `sequence_parallel` the residual stream and the norms
/// hold a part of the sequence each, gathered before and scattered after what is sharded.
///
/// Source: Shoeybi et al., "Megatron-LM", 2019; Korthikanti et al., "Reducing Activation
/// Recomputation in Large Transformer Models", 2022.
planner::StylePlan default_styles(Architecture architecture, bool sequence_parallel);

}  // namespace meshloom::nn
